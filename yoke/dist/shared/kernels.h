// yoke/dist/shared/kernels.h -- reduces the contributions of all ranks. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace yoke::dist::shared {

/// Types of elements. Complex numbers are pairs of real ones.
enum class Type : uint32_t { kBool, kU8, kI8, kU16, kI16, kU32, kI32, kU64, kI64, kF16, kBF16, kF32, kF64 };
enum class Reduction : uint32_t { kSum, kProduct, kMin, kMax };

int64_t size_of(Type type);

/// Reduces `count` elements of each source in the order of the sources, and writes them to `to`, which may be one of
/// the sources. So all ranks that reduce the same contributions get the same bits.
///
/// float16 and bfloat16 are reduced in float and rounded once. Integers wrap around. The least and the greatest are NaN
/// if one of the elements is. Of bools, the sum and the greatest are true if one is, the product and the least if all
/// are.
void reduce(Type type, Reduction reduction, std::byte* to, std::span<const std::byte* const> sources, int64_t count);

/// Asks for the cache lines of memory that is about to be written, and that another processor has read: a store to
/// such a line waits as long as a miss, and few stores wait at the same time.
void prefetch_to_write(const std::byte* memory, int64_t bytes);

/// memcpy into such memory; null pointers are allowed if `bytes` is 0.
void copy_to_shared(std::byte* to, const std::byte* from, int64_t bytes);

/// So many bytes are prefetched while as many are written.
inline constexpr int64_t kPrefetchBytes = 2 << 10;

}  // namespace yoke::dist::shared

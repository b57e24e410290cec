#include "yoke/dist/shared/kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "yoke/dist/shared/layout.h"

namespace yoke::dist::shared {
namespace {

constexpr int64_t kTile = 1024;  ///< Elements that are reduced over all ranks before the next ones; they stay in L1.

/// Types with 16 bits that are reduced in float.
struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

inline float widen(BFloat16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

inline BFloat16 narrow_to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;  // to the nearest, ties to even
  return {static_cast<uint16_t>(value != value ? 0x7fc0 : rounded)};
}

/// The exponent of float16 is moved to the place of a float's. The product corrects its bias, and makes subnormal
/// numbers normal, even where the processor takes subnormal floats for zero: these have a bit of the exponent set
/// first.
inline float widen(Float16 value) {
  const uint32_t magnitude = uint32_t{value.bits & 0x7fffu} << 13, sign = uint32_t{value.bits & 0x8000u} << 16;
  const float normal = std::bit_cast<float>(magnitude + (112u << 23));
  const float subnormal = std::bit_cast<float>(magnitude + (113u << 23)) - std::bit_cast<float>(113u << 23);
  const float infinite = std::bit_cast<float>(magnitude | (255u << 23));
  const float absolute = magnitude < (1u << 23) ? subnormal : magnitude >= (31u << 23) ? infinite : normal;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(absolute) | sign);
}

inline Float16 narrow_to_float16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu, sign = (bits >> 16) & 0x8000u;
  const uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - (112u << 23)) >> 13;
  // The sum with 0.5 has its last bit where float16 has that of its smallest numbers, and is rounded there.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - (126u << 23);
  uint32_t result = magnitude < (113u << 23) ? subnormal : normal;
  result = magnitude >= (143u << 23) ? 0x7c00 : result;
  result = magnitude > (255u << 23) ? 0x7e00 : result;
  return {static_cast<uint16_t>(result | sign)};
}

inline float load(BFloat16 value) { return widen(value); }
inline float load(Float16 value) { return widen(value); }
template <class T>
inline T load(T value) {
  return value;
}
inline void store(BFloat16& to, float value) { to = narrow_to_bfloat16(value); }
inline void store(Float16& to, float value) { to = narrow_to_float16(value); }
template <class T>
inline void store(T& to, T value) {
  to = value;
}

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {  // signed overflow would be undefined
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    } else {
      return a + b;
    }
  }
};
struct Product {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return b < a || b != b ? b : a;
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return b > a || b != b ? b : a;
  }
};

/// Memory of a segment and of tensors has elements of T where this reads and writes them.
template <class T, class Combine>
void fold(std::byte* to, std::span<const std::byte* const> sources, int64_t count, Combine combine) {
  auto* const out = reinterpret_cast<T*>(to);
  const auto source = [&](size_t i) { return reinterpret_cast<const T*>(sources[i]); };
  if (sources.size() == 1) {
    if (to != sources[0]) std::memcpy(to, sources[0], static_cast<size_t>(count) * sizeof(T));
    return;
  }
  if (sources.size() == 2) {
    const T *const a = source(0), *const b = source(1);
#ifndef __clang__
#pragma GCC ivdep  // `out` may be `a` or `b`, but no other element
#endif
    for (int64_t i = 0; i < count; ++i) store(out[i], combine(load(a[i]), load(b[i])));
    return;
  }
  using Wide = decltype(load(T{}));
  Wide sum[kTile];
  for (int64_t begin = 0; begin < count; begin += kTile) {
    const int64_t size = std::min(kTile, count - begin);
    const T *const a = source(0) + begin, *const b = source(1) + begin;
    for (int64_t i = 0; i < size; ++i) sum[i] = combine(load(a[i]), load(b[i]));
    for (size_t other = 2; other < sources.size(); ++other) {
      const T* const c = source(other) + begin;
      for (int64_t i = 0; i < size; ++i) sum[i] = combine(sum[i], load(c[i]));
    }
    for (int64_t i = 0; i < size; ++i) store(out[begin + i], sum[i]);
  }
}

template <class T>
void reduce_as(Reduction reduction, std::byte* to, std::span<const std::byte* const> sources, int64_t count) {
  switch (reduction) {
    case Reduction::kSum: return fold<T>(to, sources, count, Sum());
    case Reduction::kProduct: return fold<T>(to, sources, count, Product());
    case Reduction::kMin: return fold<T>(to, sources, count, Min());
    case Reduction::kMax: return fold<T>(to, sources, count, Max());
  }
}

}  // namespace

void prefetch_to_write(const std::byte* memory, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kLineBytes) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" ::"m"(memory[at]));  // GCC's builtin is a prefetch for reading, unless told of newer
                                                     // processors; on those of 64 bits this one does nothing at worst
#else
    __builtin_prefetch(memory + at, 1);
#endif
  }
}

void copy_to_shared(std::byte* to, const std::byte* from, int64_t bytes) {
  prefetch_to_write(to, std::min(bytes, kPrefetchBytes));
  for (int64_t at = 0; at < bytes; at += kPrefetchBytes) {
    const int64_t next = at + kPrefetchBytes;
    prefetch_to_write(to + next, std::min(bytes - next, kPrefetchBytes));
    std::memcpy(to + at, from + at, static_cast<size_t>(std::min(bytes - at, kPrefetchBytes)));
  }
}

int64_t size_of(Type type) {
  switch (type) {
    case Type::kBool:
    case Type::kU8:
    case Type::kI8: return 1;
    case Type::kU16:
    case Type::kI16:
    case Type::kF16:
    case Type::kBF16: return 2;
    case Type::kU32:
    case Type::kI32:
    case Type::kF32: return 4;
    case Type::kU64:
    case Type::kI64:
    case Type::kF64: return 8;
  }
  return 1;
}

void reduce(Type type, Reduction reduction, std::byte* to, std::span<const std::byte* const> sources, int64_t count) {
  switch (type) {
    case Type::kBool:  // 0 or 1
      if (reduction == Reduction::kSum) reduction = Reduction::kMax;
      return reduce_as<uint8_t>(reduction, to, sources, count);
    case Type::kU8: return reduce_as<uint8_t>(reduction, to, sources, count);
    case Type::kI8: return reduce_as<int8_t>(reduction, to, sources, count);
    case Type::kU16: return reduce_as<uint16_t>(reduction, to, sources, count);
    case Type::kI16: return reduce_as<int16_t>(reduction, to, sources, count);
    case Type::kU32: return reduce_as<uint32_t>(reduction, to, sources, count);
    case Type::kI32: return reduce_as<int32_t>(reduction, to, sources, count);
    case Type::kU64: return reduce_as<uint64_t>(reduction, to, sources, count);
    case Type::kI64: return reduce_as<int64_t>(reduction, to, sources, count);
    case Type::kF16: return reduce_as<Float16>(reduction, to, sources, count);
    case Type::kBF16: return reduce_as<BFloat16>(reduction, to, sources, count);
    case Type::kF32: return reduce_as<float>(reduction, to, sources, count);
    case Type::kF64: return reduce_as<double>(reduction, to, sources, count);
  }
}

}  // namespace yoke::dist::shared

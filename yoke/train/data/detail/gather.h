// yoke/train/data/detail/gather.h -- the loader's inner loops: rows from all over a data set into one batch. Internal.
//
// All of it runs in one thread and calls nothing of libtorch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace yoke::train::detail {

/// A sample is [channels, pixels]. In the batch it keeps that order, or becomes [pixels, channels] (channels_last).
struct SampleShape {
  int64_t channels = 1;
  int64_t pixels = 0;
  bool channels_last = false;
};

/// Copies sample rows[i] of `from`, of items of `item_bytes` (1, 2, 4, 8 or 16), to place i of `to`.
void gather(const std::byte* from, std::span<const int64_t> rows, const SampleShape& shape, int64_t item_bytes,
            std::byte* to);

/// What each of the 256 values of a byte becomes in a channel; one entry for all channels, or one for each.
///
/// A table, because its values can be PyTorch's to the last bit, on every CPU; (x * a + b) in vectors cannot, and the
/// divisions that could are slower: 6.8 M samples/s of 28 x 28 bytes here, against 16 M and 6 M (one thread, AVX-512).
template <typename T>
using ByteTables = std::vector<std::array<T, 256>>;

/// The same for bytes that become table values: T is float, or uint16_t for the bits of a half-precision type.
void gather_through(const uint8_t* from, std::span<const int64_t> rows, const SampleShape& shape,
                    const ByteTables<float>& tables, float* to);
void gather_through(const uint8_t* from, std::span<const int64_t> rows, const SampleShape& shape,
                    const ByteTables<uint16_t>& tables, uint16_t* to);

}  // namespace yoke::train::detail

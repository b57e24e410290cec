// yoke/train/data/detail/gather.h -- the loader's inner loops, which copy rows of a data set into one batch. Internal.
//
// The functions run in one thread and do not call libtorch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace yoke::train::detail {

/// A sample is [channels, pixels]. In the batch it has the same shape, or [pixels, channels] (channels_last).
struct SampleShape {
  int64_t channels = 1;
  int64_t pixels = 0;
  bool channels_last = false;
};

/// Copies sample rows[i] of `from` to position i of `to`. An item has `item_bytes` bytes (1, 2, 4, 8 or 16).
void gather(const std::byte* from, std::span<const int64_t> rows, const SampleShape& shape, int64_t item_bytes,
            std::byte* to);

/// The converted values of the 256 byte values; one table for all channels, or one per channel.
///
/// Tables give PyTorch's values to the last bit on every CPU. A vectorised x * a + b does not give the same bits;
/// divisions do, but are slower. With one thread and AVX-512, tables convert 6.8 million samples/s of 28 x 28 bytes, x
/// * a + b 16 million, and divisions 6 million.
template <typename T>
using ByteTables = std::vector<std::array<T, 256>>;

/// Like gather, but replaces bytes by table values. T is float, or uint16_t for the bits of a half-precision type.
void gather_through(const uint8_t* from, std::span<const int64_t> rows, const SampleShape& shape,
                    const ByteTables<float>& tables, float* to);
void gather_through(const uint8_t* from, std::span<const int64_t> rows, const SampleShape& shape,
                    const ByteTables<uint16_t>& tables, uint16_t* to);

}  // namespace yoke::train::detail

// yoke/train/image/detail/resize.h -- bilinear resizing with antialiasing, as Pillow's BILINEAR. Without libtorch.
#pragma once

#include <cstdint>
#include <vector>

#include "yoke/train/image/detail/decode.h"

namespace yoke::train::detail {

/// One direction of a resize: [begin, end) of the source becomes `out_size` pixels. Only output pixels [out_first,
/// out_first + out_count) are made. Source pixels outside [low, high) are not used.
struct Axis {
  double begin = 0;
  double end = 0;
  int low = 0;
  int high = 0;
  int out_size = 0;
  int out_first = 0;
  int out_count = 0;
};

/// For each output pixel, its first source pixel, and the weights of that pixel and the following ones. Every output
/// pixel has `width` weights, an even number; unused weights are zero. The weights of a pixel sum to kOne.
struct Taps {
  static constexpr int kBits = 14;
  static constexpr int kOne = 1 << kBits;

  explicit Taps(const Axis& axis);

  int width = 0;
  int low = 0;  ///< The source pixels that are needed: [low, high).
  int high = 0;
  std::vector<int> first;
  std::vector<int16_t> weights;
};

/// Makes RGB pixels [y.first.size(), x.first.size(), 3]. `out` must have one more byte at its end, which is
/// overwritten. Calls reuse `rows` as a buffer. REQUIRES: pixels.region contains [x.low, x.high) and [y.low, y.high).
///
/// Accuracy  between the two directions, values have 7 bits more than a byte, where Pillow rounds to bytes. So results
///           differ from Pillow's by at most 1.
void resize(const Pixels& pixels, const Taps& x, const Taps& y, uint8_t* out, std::vector<uint16_t>& rows);

}  // namespace yoke::train::detail

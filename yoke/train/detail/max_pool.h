// yoke/train/detail/max_pool.h -- loops for max pooling of images, with the values, indices and bits of libtorch's.
#pragma once

#include <cstdint>

namespace yoke::train::detail {

/// Windows over an image of height x width numbers for each channel, which make out_height x out_width numbers of it.
/// Paddings are at most half of a window. REQUIRES: each window has a number of the image in it, and
/// height * width < 2^30.
struct MaxPool {
  int64_t height, width;
  int64_t out_height, out_width;
  int64_t window_height, window_width;
  int64_t stride_height, stride_width;
  int64_t top, left;  ///< Paddings.

  /// Whether the windows are the squares of two by two.
  bool is_of_squares() const {
    return window_height == 2 && window_width == 2 && stride_height == 2 && stride_width == 2 && top == 0 && left == 0;
  }
};

/// The maxima of float planes, which lie one after the other, and where each is in its plane. Returns false if there is
/// a NaN, or perhaps infinities of both signs in one window: then libtorch must compute what `y` and `index` have.
bool pool_planes(const MaxPool& pool, const float* x, int64_t num_planes, float* y, int64_t* index);
/// The same for bfloat16, of which these are the bits.
bool pool_planes(const MaxPool& pool, const uint16_t* x, int64_t num_planes, uint16_t* y, int64_t* index);

}  // namespace yoke::train::detail

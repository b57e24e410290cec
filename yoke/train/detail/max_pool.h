// yoke/train/detail/max_pool.h -- loops for max pooling of images, with the values, indices and bits of libtorch's.
#pragma once

#include <algorithm>
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

  struct Range {
    int64_t begin, end;
  };
  /// The rows and the columns of the image that are in the windows of a row and of a column of the result.
  Range rows_of(int64_t out_row) const { return within(out_row * stride_height - top, window_height, height); }
  Range columns_of(int64_t out_column) const { return within(out_column * stride_width - left, window_width, width); }

  /// Whether the windows are the squares of two by two.
  bool is_of_squares() const {
    return window_height == 2 && window_width == 2 && stride_height == 2 && stride_width == 2 && top == 0 && left == 0;
  }

  /// Whether no number is in two windows.
  bool is_disjoint() const { return stride_height >= window_height && stride_width >= window_width; }

 private:
  static Range within(int64_t first, int64_t window, int64_t size) {
    return {std::max<int64_t>(first, 0), std::min(first + window, size)};
  }
};

/// The maxima of float planes, which lie one after the other, and where each is in its plane. Returns false if there is
/// a NaN, or perhaps infinities of both signs in one window: then libtorch must compute what `y` and `index` have.
bool pool_planes(const MaxPool& pool, const float* x, int64_t num_planes, float* y, int64_t* index);
/// The same for bfloat16, of which these are the bits.
bool pool_planes(const MaxPool& pool, const uint16_t* x, int64_t num_planes, uint16_t* y, int64_t* index);

constexpr int64_t kMinChannels = 8;

/// The same for images whose channels, at least kMinChannels, are next to each other (channels_last), with NaN and
/// infinities: rows `begin` to `end` of the results of all images, one image after the other.
void pool_channels_last(const MaxPool& pool, const float* x, int64_t channels, int64_t begin, int64_t end, float* y,
                        int64_t* index);
void pool_channels_last(const MaxPool& pool, const uint16_t* x, int64_t channels, int64_t begin, int64_t end,
                        uint16_t* y, int64_t* index);

/// The gradient of one such image, of the result's gradient and the index. REQUIRES: no number is in two windows.
/// Returns false if an index is not in its window: then libtorch must compute the gradient.
bool spread_channels_last(const MaxPool& pool, const float* gradient, const int64_t* index, int64_t channels,
                          float* image);
bool spread_channels_last(const MaxPool& pool, const uint16_t* gradient, const int64_t* index, int64_t channels,
                          uint16_t* image);

}  // namespace yoke::train::detail

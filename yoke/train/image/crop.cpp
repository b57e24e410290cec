#include "yoke/train/image/detail/crop.h"

#include <algorithm>
#include <cmath>

namespace yoke::train::detail {
namespace {

int round_half_even(double value) { return static_cast<int>(std::nearbyint(value)); }  // as Python's round

// Resizes a side of `size` pixels to `resized` pixels, and computes only the middle `out` pixels of the result.
Axis middle(int size, int resized, int out) {
  return {.end = static_cast<double>(size),
          .high = size,
          .out_size = resized,
          .out_first = round_half_even((resized - out) / 2.0),
          .out_count = out};
}

Axis whole_part(int first, int count, int out) {
  return {.begin = static_cast<double>(first),
          .end = static_cast<double>(first + count),
          .low = first,
          .high = first + count,
          .out_size = out,
          .out_count = out};
}

void shrink_axis(Axis& axis, int divisor, int image_size) {
  const int shrunk_size = (image_size + divisor - 1) / divisor;
  axis.begin /= divisor;
  axis.end /= divisor;
  axis.low /= divisor;
  axis.high = std::min((axis.high + divisor - 1) / divisor, shrunk_size);
}

}  // namespace

Crop centre_crop(const ImageInfo& image, int shorter_side, OutputSize out) {
  const auto resized = [&](int size) {
    return static_cast<int>(int64_t{shorter_side} * size / std::min(image.width, image.height));
  };
  return {.x = middle(image.width, resized(image.width), out.width),
          .y = middle(image.height, resized(image.height), out.height)};
}

Region random_region(const ImageInfo& image, const CropRange& range, SampleRandom& random) {
  const double width = image.width, height = image.height;
  for (int trial = 0; trial < 10; ++trial) {
    const double area = width * height * random.uniform(range.min_area, range.max_area);
    const double ratio = std::exp(random.uniform(std::log(range.min_ratio), std::log(range.max_ratio)));
    const int w = round_half_even(std::sqrt(area * ratio)), h = round_half_even(std::sqrt(area / ratio));
    if (w <= 0 || w > image.width || h <= 0 || h > image.height) continue;
    const auto top = static_cast<int>(random.below(image.height - h + 1));
    const auto left = static_cast<int>(random.below(image.width - w + 1));
    return {.left = left, .top = top, .width = w, .height = h};
  }
  Region region{.width = image.width, .height = image.height};
  if (width / height < range.min_ratio) {
    region.height = std::clamp(round_half_even(width / range.min_ratio), 1, image.height);
  } else if (width / height > range.max_ratio) {
    region.width = std::clamp(round_half_even(height * range.max_ratio), 1, image.width);
  }
  region.left = (image.width - region.width) / 2;
  region.top = (image.height - region.height) / 2;
  return region;
}

Crop resized_crop(const Region& region, OutputSize out) {
  return {.x = whole_part(region.left, region.width, out.width),
          .y = whole_part(region.top, region.height, out.height)};
}

void shrink(Crop& crop, const ImageInfo& image) {
  const double pixels_per_output = std::min((crop.x.end - crop.x.begin) / crop.x.out_size,  //
                                            (crop.y.end - crop.y.begin) / crop.y.out_size);
  while (crop.shrink < 8 && pixels_per_output >= 2 * crop.shrink) crop.shrink *= 2;
  shrink_axis(crop.x, crop.shrink, image.width);
  shrink_axis(crop.y, crop.shrink, image.height);
}

}  // namespace yoke::train::detail

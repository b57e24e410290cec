// yoke/train/image/detail/crop.h -- decides which part of an image becomes the sample, and at which size it is decoded.
#pragma once

#include "yoke/train/data/sample_random.h"
#include "yoke/train/image/detail/decode.h"
#include "yoke/train/image/detail/resize.h"

namespace yoke::train::detail {

struct OutputSize {
  int width = 0;
  int height = 0;
};

/// How to make the sample from an image that is decoded at 1 / shrink of its width and height.
struct Crop {
  int shrink = 1;
  Axis x, y;
};

/// Resizes the image so that its shorter side is `shorter_side`, and takes the centre: torchvision's Resize and
/// CenterCrop, with their rounding. REQUIRES: `out` is at most shorter_side in both directions.
Crop centre_crop(const ImageInfo& image, int shorter_side, OutputSize out);

/// A part of random area and shape, which is resized to `out`. `area` is relative to the image, `ratio` is width /
/// height. Like torchvision's RandomResizedCrop, tries ten random parts. If all of them exceed the image, takes the
/// largest centred part whose ratio is in the range.
struct CropRange {
  double min_area, max_area;
  double min_ratio, max_ratio;
};
Region random_region(const ImageInfo& image, const CropRange& range, SampleRandom& random);
Crop resized_crop(const Region& region, OutputSize out);

/// Makes the image be decoded at a smaller size, and converts the crop to that size. Chooses the smallest of 1/1, 1/2,
/// 1/4 and 1/8 at which the crop has at least as many pixels as the output. (libjpeg also scales by 3/8, 5/8, 6/8 and
/// 7/8, but only the powers of two have vector code: on an AMD EPYC, 500 x 375 pixels take 0.69 ms whole, 0.58 at 4/8,
/// but 0.94 at 5/8 and 1.05 at 6/8.)
void shrink(Crop& crop, const ImageInfo& image);

}  // namespace yoke::train::detail

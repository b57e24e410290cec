// yoke/train/image/detail/color_jitter.h -- Pillow's enhancements of RGB bytes, in place. Without libtorch.
#pragma once

#include <cstdint>
#include <span>

namespace yoke::train::detail {

// `rgb` is [pixels, 3]. A factor of 1 leaves the image as it is. Each value moves between one without the property and
// the image, or beyond the image, and is rounded towards zero as Pillow's blend does.
void adjust_brightness(std::span<uint8_t> rgb, double factor);  ///< From black.
void adjust_contrast(std::span<uint8_t> rgb, double factor);    ///< From the mean of the image's grey.
void adjust_saturation(std::span<uint8_t> rgb, double factor);  ///< From the pixel's grey.
/// Adds shift * 255, without its fraction, to the hue, whose circle has 256 steps. `shift` is in [-0.5, 0.5].
void adjust_hue(std::span<uint8_t> rgb, double shift);

}  // namespace yoke::train::detail

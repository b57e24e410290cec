// yoke/train/image/detail/color_jitter.h -- Pillow's enhancements of RGB bytes, in place. Without libtorch.
#pragma once

#include <cstdint>
#include <span>

namespace yoke::train::detail {

// `rgb` is [pixels, 3]. Each value v becomes base + factor * (v - base), rounded towards zero like Pillow's blend. With
// a factor of 1 the image is unchanged; with 0 every value becomes the base.
void adjust_brightness(std::span<uint8_t> rgb, double factor);  ///< The base is black.
void adjust_contrast(std::span<uint8_t> rgb, double factor);    ///< The base is the image's mean grey.
void adjust_saturation(std::span<uint8_t> rgb, double factor);  ///< The base is the pixel's grey.
/// Adds shift * 255, truncated to an integer, to the hue modulo 256. `shift` is in [-0.5, 0.5].
void adjust_hue(std::span<uint8_t> rgb, double shift);

}  // namespace yoke::train::detail

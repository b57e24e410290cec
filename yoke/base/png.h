// yoke/base/png.h -- images as PNG files.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace yoke {

/// Turns bytes into a zlib stream (RFC 1950).
using Compress = std::function<std::string(std::string_view bytes)>;

/// For drawings, without zlib: finds repetitions, and uses the fixed codes of deflate. Noise becomes up to an eighth
/// longer.
std::string compress_drawing(std::string_view bytes);

/// 8-bit pixels [height, width, num_channels] as a PNG file. The channels are grey, grey and alpha, RGB, or RGBA.
/// Errors  kInvalidArgument: an empty image, a side of more than 65536 pixels, or other than 1 to 4 channels.
std::string encode_png(std::span<const uint8_t> pixels, int64_t height, int64_t width, int64_t num_channels,
                       const Compress& compress = compress_drawing);

}  // namespace yoke

// yoke/train/image/detail/decode.h -- decodes the part of a JPEG or PNG image that a crop needs. Without libtorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace yoke::train::detail {

/// The facts in a file's header.
struct ImageInfo {
  int width = 0;
  int height = 0;
  bool can_shrink = false;  ///< True for a JPEG: it can be decoded at a half, a quarter or an eighth of its size.
};

struct Region {
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;
};

/// RGB pixels. `region` is in the coordinates of the shrunk image.
struct Pixels {
  Region region;
  std::vector<uint8_t> rgb;  ///< [region.height, region.width, 3], then unused bytes from an earlier, larger image.

  /// Returns memory for `size` bytes, without clearing it.
  uint8_t* memory(size_t size) {
    if (rgb.size() < size) rgb.resize(size);
    return rgb.data();
  }
};

/// Which part to decode, at 1 / shrink of the size. `region` is inside the shrunk image, whose width and height are
/// rounded up.
struct DecodeRequest {
  int shrink = 1;  ///< 1, or for images that can shrink 2, 4 or 8.
  Region region;
};

/// Reads the header, asks `choose` which part to decode, and decodes at least that part. If `pixels` was used before,
/// its memory is reused. `name` is the file's name for errors.
///
/// Formats  are recognised by their first bytes: JPEG (baseline, progressive and arithmetic; grey, YCbCr, RGB, CMYK,
///          YCCK) and PNG (all types). The colours are those of Pillow's convert("RGB"): alpha is dropped, grey becomes
///          three equal channels, and CMYK is taken as inverted, as Adobe writes it. One difference: grey of 16 bits is
///          reduced to its upper 8 bits, like colours; Pillow makes all values above 255 white.
/// Errors   kDataLoss: another format, a damaged or truncated image, or more than `max_pixels` pixels (no memory is
///          allocated then). JPEG data after the region are not decoded, so damage there is not found; but the end
///          marker must exist.
void decode_image(std::span<const std::byte> bytes, std::string_view name, int64_t max_pixels,
                  const std::function<DecodeRequest(const ImageInfo&)>& choose, Pixels& pixels);

// The parts of decode_image. `check_size` is called before memory is allocated.
struct DecodeCalls {
  std::string_view name;
  std::function<void(int64_t width, int64_t height)> check_size;
  const std::function<DecodeRequest(const ImageInfo&)>& choose;
};
void decode_jpeg(std::span<const std::byte> bytes, const DecodeCalls& calls, Pixels& pixels);
void decode_png(std::span<const std::byte> bytes, const DecodeCalls& calls, Pixels& pixels);

}  // namespace yoke::train::detail

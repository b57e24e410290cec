// yoke/base/png.h -- images as PNG files.
//
// All code is in this header, so that only programs that include it need to link zlib.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "yoke/base/error.h"

namespace yoke {
namespace detail {

inline void append_big_endian(std::string& to, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(value >> shift);
}

inline void append_png_chunk(std::string& to, std::string_view type, std::string_view content) {
  append_big_endian(to, static_cast<uint32_t>(content.size()));
  const auto begin = to.size();
  to.append(type).append(content);
  append_big_endian(to, static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(to.data() + begin),
                                                      static_cast<uInt>(to.size() - begin))));
}

}  // namespace detail

/// Encodes 8-bit pixels [height, width, num_channels] as PNG. The channels are grey, grey and alpha, RGB, or RGBA.
/// Errors  kInvalidArgument: an empty image, a side of more than 65536 pixels, or not 1 to 4 channels;
///         kUnavailable: out of memory.
/// Source  Portable Network Graphics, W3C Recommendation, third edition.
inline std::string encode_png(std::span<const uint8_t> pixels, int64_t height, int64_t width, int64_t num_channels) {
  constexpr int64_t kMaxSide = 1 << 16;
  if (height < 1 || width < 1 || height > kMaxSide || width > kMaxSide || num_channels < 1 || num_channels > 4 ||
      std::ssize(pixels) != height * width * num_channels) {
    throw Error(ErrorCode::kInvalidArgument,
                "an image has 1 to 4 channels and sides of 1 to {} pixels, not [{}, {}, {}]", kMaxSide, num_channels,
                height, width);
  }
  constexpr char kColorTypes[] = {0, 4, 2, 6};
  std::string header;
  detail::append_big_endian(header, static_cast<uint32_t>(width));
  detail::append_big_endian(header, static_cast<uint32_t>(height));
  header += '\x08';  // bits per channel
  header += kColorTypes[num_channels - 1];
  header.append(3, '\0');  // compression 0, filter method 0 (there are no others), not interlaced

  const auto row_bytes = static_cast<size_t>(width * num_channels);
  std::string rows;
  rows.reserve((row_bytes + 1) * static_cast<size_t>(height));
  for (size_t row = 0; row < static_cast<size_t>(height); ++row) {
    rows += '\0';  // filter type 0: the row is not filtered
    rows.append(reinterpret_cast<const char*>(pixels.data()) + row * row_bytes, row_bytes);
  }

  std::string png = "\x89PNG\r\n\x1a\n";
  detail::append_png_chunk(png, "IHDR", header);
  auto size = compressBound(rows.size());
  std::string compressed(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(compressed.data()), &size, reinterpret_cast<const Bytef*>(rows.data()),
                rows.size(), Z_DEFAULT_COMPRESSION) != Z_OK) {
    throw Error(ErrorCode::kUnavailable, "compressing an image of {} bytes: out of memory", rows.size());
  }
  compressed.resize(size);
  detail::append_png_chunk(png, "IDAT", compressed);
  detail::append_png_chunk(png, "IEND", "");
  return png;
}

}  // namespace yoke

#include <zlib.h>

#include <vector>

#include "yoke/base/error.h"
#include "yoke/train/watch/detail/event_encoder.h"

namespace yoke::train::detail {
namespace {

void append_big_endian(std::string& to, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(value >> shift);
}

void append_chunk(std::string& to, std::string_view type, std::string_view content) {
  append_big_endian(to, static_cast<uint32_t>(content.size()));
  const auto begin = to.size();
  to.append(type).append(content);
  const auto* bytes = reinterpret_cast<const Bytef*>(to.data() + begin);
  append_big_endian(to, static_cast<uint32_t>(crc32_z(0, bytes, to.size() - begin)));
}

}  // namespace

// Source  Portable Network Graphics, W3C Recommendation, third edition.
std::string encode_png(std::span<const uint8_t> pixels, int64_t height, int64_t width, int64_t num_channels) {
  constexpr int64_t kMaxSide = 1 << 16;
  if (height < 1 || width < 1 || height > kMaxSide || width > kMaxSide || num_channels < 1 || num_channels > 4 ||
      std::ssize(pixels) != height * width * num_channels) {
    throw Error(ErrorCode::kInvalidArgument,
                "an image has 1 to 4 channels and sides of 1 to {} pixels, not [{}, {}, {}]", kMaxSide, num_channels,
                height, width);
  }
  constexpr char kColorTypes[] = {0, 4, 2, 6};
  std::string header;
  append_big_endian(header, static_cast<uint32_t>(width));
  append_big_endian(header, static_cast<uint32_t>(height));
  header += '\x08';  // bits of a channel
  header += kColorTypes[num_channels - 1];
  header.append(3, '\0');  // the only compression, the only family of filters, not interlaced

  const auto row_bytes = static_cast<size_t>(width * num_channels);
  std::string rows;
  rows.reserve((row_bytes + 1) * static_cast<size_t>(height));
  for (size_t row = 0; row < static_cast<size_t>(height); ++row) {
    rows += '\0';  // not filtered
    rows.append(reinterpret_cast<const char*>(pixels.data()) + row * row_bytes, row_bytes);
  }
  auto size = compressBound(rows.size());
  std::string compressed(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(compressed.data()), &size, reinterpret_cast<const Bytef*>(rows.data()),
                rows.size(), Z_DEFAULT_COMPRESSION) != Z_OK) {
    throw Error(ErrorCode::kUnavailable, "compressing an image [{}, {}, {}]: out of memory", num_channels, height,
                width);
  }
  compressed.resize(size);

  std::string png = "\x89PNG\r\n\x1a\n";
  append_chunk(png, "IHDR", header);
  append_chunk(png, "IDAT", compressed);
  append_chunk(png, "IEND", "");
  return png;
}

}  // namespace yoke::train::detail

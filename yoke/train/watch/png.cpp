#include "yoke/base/png.h"

#include <zlib.h>

#include "yoke/base/error.h"
#include "yoke/train/watch/detail/event_encoder.h"

namespace yoke::train::detail {
namespace {

std::string zlib_compress(std::string_view bytes) {
  auto size = compressBound(bytes.size());
  std::string compressed(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(compressed.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
                bytes.size(), Z_DEFAULT_COMPRESSION) != Z_OK) {
    throw Error(ErrorCode::kUnavailable, "compressing an image of {} bytes: out of memory", bytes.size());
  }
  compressed.resize(size);
  return compressed;
}

}  // namespace

std::string encode_png(std::span<const uint8_t> pixels, int64_t height, int64_t width, int64_t num_channels) {
  return yoke::encode_png(pixels, height, width, num_channels, zlib_compress);
}

}  // namespace yoke::train::detail

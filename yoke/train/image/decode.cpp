#include "yoke/train/image/detail/decode.h"

#include <algorithm>
#include <array>

#include "yoke/base/error.h"

namespace yoke::train::detail {
namespace {

template <size_t kSize>
bool begins_with(std::span<const std::byte> bytes, const std::array<uint8_t, kSize>& magic) {
  return bytes.size() >= kSize && std::equal(magic.begin(), magic.end(), bytes.begin(),
                                             [](uint8_t a, std::byte b) { return std::byte{a} == b; });
}

constexpr std::array<uint8_t, 3> kJpegMagic{0xFF, 0xD8, 0xFF};
constexpr std::array<uint8_t, 8> kPngMagic{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

}  // namespace

void decode_image(std::span<const std::byte> bytes, std::string_view name, int64_t max_pixels,
                  const std::function<DecodeRequest(const ImageInfo&)>& choose, Pixels& pixels) {
  const DecodeCalls calls{name,
                          [&](int64_t width, int64_t height) {
                            if (height <= max_pixels / width) return;
                            throw Error(ErrorCode::kDataLoss,
                                        "{}: its header says {} x {} pixels; at most {} are allowed (max_pixels)", name,
                                        width, height, max_pixels);
                          },
                          choose};
  if (begins_with(bytes, kJpegMagic)) return decode_jpeg(bytes, calls, pixels);
  if (begins_with(bytes, kPngMagic)) return decode_png(bytes, calls, pixels);
  std::string start;
  for (const std::byte byte : bytes.first(std::min<size_t>(bytes.size(), 4))) {
    start += fmt::format(" {:02x}", static_cast<int>(byte));
  }
  throw Error(
      ErrorCode::kDataLoss, "{}: expected a JPEG or PNG image, found {}", name,
      bytes.empty() ? "an empty file" : fmt::format("a file of {} bytes that begins with{}", bytes.size(), start));
}

}  // namespace yoke::train::detail

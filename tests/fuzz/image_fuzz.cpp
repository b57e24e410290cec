// Reads any bytes as a JPEG or PNG image: it is refused with an Error, or a crop of it is decoded and resized. The last
// two bytes choose the crop and the size.
#include <cstdlib>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/train/image/detail/crop.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  using namespace yoke::train;          // NOLINT(google-build-using-namespace): a program of one file
  using namespace yoke::train::detail;  // NOLINT(google-build-using-namespace)
  if (size < 2) return 0;
  size -= 2;
  const unsigned char kind = data[size], seed = data[size + 1];
  // This copy has exactly the input's size, so that ASan detects a read beyond the end.
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  constexpr int64_t kMaxPixels = 1 << 16;
  const OutputSize out{1 + kind % 16, 1 + kind / 16};
  std::optional<Taps> x, y;
  Pixels pixels;
  Region asked;
  SampleRandom random(seed, 0, 0);
  try {
    decode_image(
        file, "file", kMaxPixels,
        [&](const ImageInfo& image) {
          if (int64_t{image.width} * image.height > kMaxPixels) std::abort();
          Crop crop = seed % 4 == 0 ? centre_crop(image, 16, out)
                                    : resized_crop(random_region(image, {0.01, 1, 0.5, 2}, random), out);
          if (image.can_shrink) shrink(crop, image);
          x.emplace(crop.x);
          y.emplace(crop.y);
          asked = {x->low, y->low, x->high - x->low, y->high - y->low};
          return DecodeRequest{crop.shrink, asked};
        },
        pixels);
  } catch (const yoke::Error&) {
    return 0;
  }
  const auto& got = pixels.region;
  if (got.left > asked.left || got.top > asked.top || got.left + got.width < asked.left + asked.width ||
      got.top + got.height < asked.top + asked.height) {
    std::abort();
  }
  std::vector<uint8_t> resized(static_cast<size_t>(3 * out.width * out.height) + 1);
  std::vector<uint16_t> rows;
  resize(pixels, *x, *y, resized.data(), rows);
  return 0;
}

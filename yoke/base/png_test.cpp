#include "yoke/base/png.h"

#include <gtest/gtest.h>

#include <vector>

namespace yoke {
namespace {

TEST(Png, HasSizeAndPixels) {
  const std::vector<uint8_t> pixels = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};  // [2, 2, 3]
  const auto png = encode_png(pixels, 2, 2, 3);
  EXPECT_TRUE(png.starts_with(std::string("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x02\0\0\0\x02\x08\x02\0\0\0", 29)));
  const auto data = png.find("IDAT") + 4;
  std::string rows(100, '\0');
  uLongf size = rows.size();
  ASSERT_EQ(uncompress(reinterpret_cast<Bytef*>(rows.data()), &size, reinterpret_cast<const Bytef*>(png.data() + data),
                       png.size() - data),
            Z_OK);
  rows.resize(size);
  EXPECT_EQ(rows, std::string("\0\1\2\3\4\5\6\0\7\x8\x9\xa\xb\xc", 14));
  EXPECT_THROW(encode_png(pixels, 2, 2, 4), Error);
  EXPECT_THROW(encode_png({}, 0, 2, 3), Error);
  EXPECT_THROW(encode_png(pixels, 1, 2, 6), Error);
}

}  // namespace
}  // namespace yoke

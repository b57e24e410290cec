#include "yoke/base/png.h"

#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <vector>

#include "yoke/base/crc32.h"
#include "yoke/base/error.h"

namespace yoke {
namespace {

/// Decodes a zlib stream of one block with fixed codes, by the tables of RFC 1951, 3.2.5 and 3.2.6.
std::string inflate_fixed(std::string_view stream) {
  static constexpr int kLengths[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                     31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
  static constexpr int kLengthBits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                        2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
  static constexpr int kDistances[] = {1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                       33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                       1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
  size_t place = 16;  // in bits, after the header
  const auto bit = [&] { return static_cast<uint8_t>(stream.at(place / 8)) >> (place++ % 8) & 1; };
  const auto bits = [&](int count) {
    int value = 0;
    for (int i = 0; i < count; ++i) value |= bit() << i;
    return value;
  };
  const auto code = [&](int count, int value = 0) {
    for (int i = 0; i < count; ++i) value = value << 1 | bit();
    return value;
  };
  if (bits(3) != 3) throw std::runtime_error("not a last block with fixed codes");
  std::string result;
  while (true) {
    int symbol = code(7);
    if (symbol < 24) {
      symbol += 256;
    } else if (symbol = code(1, symbol); symbol < 0xc0) {
      symbol -= 0x30;
    } else if (symbol < 0xc8) {
      symbol += 280 - 0xc0;
    } else {
      symbol = code(1, symbol) - 0x190 + 144;
    }
    if (symbol == 256) return result;
    if (symbol < 256) {
      result += static_cast<char>(symbol);
      continue;
    }
    const int length = kLengths[symbol - 257] + bits(kLengthBits[symbol - 257]);
    const int number = code(5);
    const int distance = kDistances[number] + bits(number < 4 ? 0 : number / 2 - 1);
    for (int i = 0; i < length; ++i) result += result.at(result.size() - static_cast<size_t>(distance));
  }
}

TEST(Png, WhatIsCompressedComesBack) {
  std::mt19937 random(3);
  for (const size_t size : {0, 1, 3, 4, 5, 257, 258, 259, 260, 1000, 40'000, 200'000}) {
    std::string noise(size, '\0'), equal(size, 'x'), periods(size, '\0');
    for (auto& byte : noise) byte = static_cast<char>(random());
    for (size_t i = 0; i < size; ++i) periods[i] = static_cast<char>(i % 3000 < 40 ? random() : i % 7);
    for (const auto& bytes : {noise, equal, periods}) {
      const auto stream = compress_drawing(bytes);
      ASSERT_EQ(inflate_fixed(stream), bytes) << size;
      EXPECT_LE(stream.size(), bytes.size() * 9 / 8 + 12);
    }
    EXPECT_LE(compress_drawing(equal).size(), size / 100 + 16);
  }
}

TEST(Png, HasSizeAndPixels) {
  const std::vector<uint8_t> pixels = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};  // [2, 2, 3]
  const auto png = encode_png(pixels, 2, 2, 3);
  EXPECT_TRUE(png.starts_with(std::string("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x02\0\0\0\x02\x08\x02\0\0\0", 29)));
  const auto data = png.find("IDAT");
  const auto rows = inflate_fixed(std::string_view(png).substr(data + 4));
  EXPECT_EQ(rows, std::string("\0\1\2\3\4\5\6\0\7\x8\x9\xa\xb\xc", 14));
  EXPECT_THROW(encode_png(pixels, 2, 2, 4), Error);
  EXPECT_THROW(encode_png({}, 0, 2, 3), Error);
  EXPECT_THROW(encode_png(pixels, 1, 2, 6), Error);
}

}  // namespace
}  // namespace yoke

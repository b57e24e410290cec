#include "yoke/base/utf8.h"

#include <gtest/gtest.h>

namespace yoke {
namespace {

/// Oracle: encoding and decoding a character returns the same character. Surrogates are not characters.
TEST(Utf8, EveryCharacterComesBack) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    const auto bytes = to_utf8(code);
    const auto [read, length] = first_character(bytes + "x");
    const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
    ASSERT_EQ(length, is_surrogate ? 0 : bytes.size()) << "U+" << std::hex << static_cast<uint32_t>(code);
    ASSERT_EQ(read, is_surrogate ? 0 : code);
  }
  EXPECT_EQ(to_utf8(0x110000), "");
}

TEST(Utf8, SaysWhetherAllIsWellFormed) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("aäß文😀"));
  for (const auto* bad : {"\x80", "a\xff", "\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xf5\x80\x80\x80", "\xed\xa0\x80"}) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
  }
}

}  // namespace
}  // namespace yoke

// yoke/base/utf8.h -- reads and writes single characters in UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace yoke {

/// A code point, and the number of bytes that encode it.
struct Utf8Character {
  char32_t code = 0;
  size_t length = 0;
};

/// The character at the beginning of `text`; length 0 if `text` does not begin with well-formed UTF-8, which has the
/// shortest forms only, no surrogates, and nothing above U+10FFFF. REQUIRES: `text` is not empty.
Utf8Character first_character(std::string_view text);

/// Whether all of `text` is well-formed.
bool is_utf8(std::string_view text);

/// The bytes that encode `code`; empty if it is above U+10FFFF.
std::string to_utf8(char32_t code);

}  // namespace yoke

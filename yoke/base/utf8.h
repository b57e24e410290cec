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

/// Returns the character at the beginning of `text`, or length 0 if that is not well-formed UTF-8: shortest forms only,
/// no surrogates, nothing above U+10FFFF. REQUIRES: `text` is not empty.
Utf8Character first_character(std::string_view text);

/// Whether all of `text` is well-formed UTF-8.
bool is_utf8(std::string_view text);

/// Returns the bytes that encode `code`, or nothing if it is above U+10FFFF.
std::string to_utf8(char32_t code);

}  // namespace yoke

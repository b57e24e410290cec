// yoke/view/braille.h -- characters of two by four dots. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "yoke/base/utf8.h"

namespace yoke::view {

/// Returns the bit of the dot in column 0 or 1 and row 0 (bottom) to 3.
constexpr uint8_t braille_dot(int64_t column, int64_t row) {
  constexpr std::array<std::array<uint8_t, 4>, 2> kBits = {{{0x40, 0x04, 0x02, 0x01}, {0x80, 0x20, 0x10, 0x08}}};
  return kBits[static_cast<size_t>(column)][static_cast<size_t>(row)];
}

/// Returns the character with these dots, or a space without dots.
inline std::string braille(uint8_t dots) { return dots == 0 ? " " : to_utf8(static_cast<char32_t>(0x2800 | dots)); }

}  // namespace yoke::view

// yoke/view/font.h -- glyphs of five by eight pixels, for drawings without a font library. Pure.
#pragma once

#include <cstdint>

namespace yoke::view {

inline constexpr int64_t kGlyphWidth = 5, kGlyphHeight = 8;  ///< The last row is for descenders, as in "g".

/// Whether the glyph of `letter` covers a pixel. Characters other than ASCII get the glyph of '?'.
/// REQUIRES: x in [0, kGlyphWidth), y in [0, kGlyphHeight).
bool glyph_covers(char letter, int64_t x, int64_t y);

}  // namespace yoke::view

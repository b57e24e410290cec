// yoke/base/text.h -- text from elsewhere (names of processes, devices, users) made harmless and cut to a width.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace yoke {

/// `text` with every byte that a terminal might obey, or that is not UTF-8, replaced by '?': control characters, escape
/// sequences (their first byte), direction overrides. Newlines and tabs become spaces.
std::string printable(std::string_view text);

/// The same, and the sequences that choose colours (ECMA-48's SGR) stay; they end with the text.
std::string printable_with_colours(std::string_view text);

/// Columns that `text` takes in a terminal. REQUIRES: printable text.
int64_t display_width(std::string_view text);

/// `text` cut to at most `width` columns; what is cut shows as "…" in the last of them. REQUIRES: printable text.
std::string fit(std::string_view text, int64_t width);

/// What follows the last '/'.
std::string_view base_name(std::string_view path);

enum class Align { kLeft, kRight };

/// `text` cut to `width` columns and filled with spaces. REQUIRES: printable text.
std::string pad(std::string_view text, int64_t width, Align align = Align::kLeft);

}  // namespace yoke

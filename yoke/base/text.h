// yoke/base/text.h -- text from elsewhere (names of processes, devices, users) made harmless and cut to a width.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yoke {

/// The parts of `text` between separators, as views of it. An empty text has none.
std::vector<std::string_view> split(std::string_view text, char separator);

/// The same where `terminator` ends a part, so that one at the end of `text` begins no further part.
std::vector<std::string_view> split_terminated(std::string_view text, char terminator);

/// The lines of `text`, without their ends.
inline std::vector<std::string_view> lines_of(std::string_view text) { return split_terminated(text, '\n'); }

/// The words of a line: what spaces, tabs and carriage returns separate.
std::vector<std::string_view> words_of(std::string_view line);

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

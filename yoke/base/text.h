// yoke/base/text.h -- splits text, makes the text of other programs safe to print, and cuts it to a width.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yoke {

/// The parts of `text` between separators, as views of it. An empty text has no parts.
std::vector<std::string_view> split(std::string_view text, char separator);

/// Like split(), but `terminator` ends each part: a terminator at the end of `text` is not followed by an empty part.
std::vector<std::string_view> split_terminated(std::string_view text, char terminator);

/// The lines of `text`, without their ends.
inline std::vector<std::string_view> lines_of(std::string_view text) { return split_terminated(text, '\n'); }

/// The words of a line, which spaces, tabs and carriage returns separate.
std::vector<std::string_view> words_of(std::string_view line);

/// `text` with '?' in place of bytes that are not UTF-8 and of characters that a terminal might interpret: control
/// characters, the first byte of escape sequences, direction overrides. Newlines and tabs become spaces.
std::string printable(std::string_view text);

/// Like printable(), but sequences that set colours (SGR of ECMA-48) stay; the colours are reset at the end.
std::string printable_with_colours(std::string_view text);

/// Columns that `text` takes in a terminal. REQUIRES: printable text.
int64_t display_width(std::string_view text);

/// `text` cut to at most `width` columns; if something is cut off, "…" is in the last of them. REQUIRES: printable
/// text.
std::string fit(std::string_view text, int64_t width);

/// The part after the last '/'.
std::string_view base_name(std::string_view path);

enum class Align { kLeft, kRight };

/// `text` cut to `width` columns and filled with spaces. REQUIRES: printable text.
std::string pad(std::string_view text, int64_t width, Align align = Align::kLeft);

}  // namespace yoke

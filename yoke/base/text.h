// yoke/base/text.h -- splits text, makes the text of other programs safe to print, and cuts it to a width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace yoke {

/// Returns whether the character is one of 0 to 9, in every locale.
constexpr bool is_digit(char character) { return character >= '0' && character <= '9'; }

/// Returns `text` with its letters from A to Z made small, or capital, in every locale.
std::string lower_case(std::string_view text);
std::string upper_case(std::string_view text);

/// Returns `text` without the characters of `blanks` at its ends, as a view into it.
std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r");

/// Whether `text` begins with one of `beginnings`.
bool begins_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings);

/// Whether one of `parts` is in `text`.
bool contains_any(std::string_view text, std::initializer_list<std::string_view> parts);

/// Returns the parts of `text` between separators, as views into it. An empty text has no parts.
std::vector<std::string_view> split(std::string_view text, char separator);

/// Like split(), but `terminator` ends each part: no empty part follows a terminator at the end of `text`.
std::vector<std::string_view> split_terminated(std::string_view text, char terminator);

/// Returns the lines of `text`, without their line feeds.
inline std::vector<std::string_view> lines_of(std::string_view text) { return split_terminated(text, '\n'); }

/// Returns the words of a line, which are separated by spaces, tabs and carriage returns.
std::vector<std::string_view> words_of(std::string_view line);

/// Returns `text` with each newline and tab replaced by a space. '?' replaces bytes that are not UTF-8, and characters
/// that a terminal might interpret: control characters, the first byte of escape sequences, direction overrides.
std::string printable(std::string_view text);

/// Like printable(), but keeps sequences that set colours (SGR of ECMA-48), and resets the colours at the end.
std::string printable_with_colours(std::string_view text);

/// Returns up to 64 random digits of hexadecimal, for names that nobody else has or guesses.
std::string random_digits(size_t num_digits);

/// Returns the number of terminal columns that `text` takes. REQUIRES: `text` is printable.
int64_t display_width(std::string_view text);

/// Cuts `text` to at most `width` columns. If something is cut off, the last column is "…". REQUIRES: `text` is
/// printable.
std::string fit(std::string_view text, int64_t width);

/// The part after the last '/'.
std::string_view base_name(std::string_view path);

enum class Align { kLeft, kRight };

/// Cuts `text` to `width` columns, or fills it with spaces. REQUIRES: `text` is printable.
std::string pad(std::string_view text, int64_t width, Align align = Align::kLeft);

}  // namespace yoke

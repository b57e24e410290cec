#include "yoke/base/text.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/base/utf8.h"

namespace yoke {
namespace {

struct Range {
  char32_t first, last;
};

// Unicode 15: combining marks, joiners and variation selectors of the common scripts.
constexpr std::array kZeroWidth = {Range{0x300, 0x36F},    Range{0x483, 0x489},   Range{0x591, 0x5BD},
                                   Range{0x610, 0x61A},    Range{0x64B, 0x65F},   Range{0x200B, 0x200D},
                                   Range{0x20D0, 0x20FF},  Range{0xFE00, 0xFE0F}, Range{0xFE20, 0xFE2F},
                                   Range{0xE0100, 0xE01EF}};
// Code points whose East Asian Width is W or F, including emoji.
constexpr std::array kDoubleWidth = {Range{0x1100, 0x115F},   Range{0x2E80, 0x303E},   Range{0x3041, 0x33FF},
                                     Range{0x3400, 0x4DBF},   Range{0x4E00, 0x9FFF},   Range{0xA000, 0xA4CF},
                                     Range{0xAC00, 0xD7A3},   Range{0xF900, 0xFAFF},   Range{0xFE30, 0xFE6F},
                                     Range{0xFF00, 0xFF60},   Range{0xFFE0, 0xFFE6},   Range{0x1F300, 0x1F64F},
                                     Range{0x1F680, 0x1F6FF}, Range{0x1F900, 0x1FAFF}, Range{0x20000, 0x3FFFD}};
// Characters that change how the rest of a line is shown: direction marks and overrides, line separators, C1 controls.
// Also those that make two different texts look alike: soft hyphens, fillers, spaces and operators of no width.
constexpr std::array kHarmful = {Range{0x00, 0x1F},     Range{0x7F, 0x9F},     Range{0xAD, 0xAD},
                                 Range{0x61C, 0x61C},   Range{0x115F, 0x1160}, Range{0x180E, 0x180E},
                                 Range{0x200B, 0x200B}, Range{0x200E, 0x200F}, Range{0x2028, 0x202E},
                                 Range{0x2060, 0x206F}, Range{0x3164, 0x3164}, Range{0xFEFF, 0xFEFF},
                                 Range{0xFFA0, 0xFFA0}, Range{0xFFF9, 0xFFFB}, Range{0xE0000, 0xE007F}};
// Some scripts and emoji need joiners, so tables keep them.
constexpr Range kJoiners = {0x200C, 0x200D};

template <size_t n>
bool is_in(const std::array<Range, n>& ranges, char32_t code) {
  return std::ranges::any_of(ranges, [code](const Range& range) { return code >= range.first && code <= range.last; });
}

int64_t width_of(char32_t code) {
  if (code < 0x300) return 1;
  return is_in(kZeroWidth, code) ? 0 : is_in(kDoubleWidth, code) ? 2 : 1;
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return result;
}

std::string upper_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return result;
}

std::string_view trimmed(std::string_view text, std::string_view blanks) {
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

bool begins_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::ranges::any_of(beginnings, [&](auto beginning) { return text.starts_with(beginning); });
}

bool contains_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(parts, [&](auto part) { return text.find(part) != text.npos; });
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size() && !text.empty();) {
    const auto end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<std::string_view> split_terminated(std::string_view text, char terminator) {
  auto parts = split(text, terminator);
  if (text.ends_with(terminator)) parts.pop_back();
  return parts;
}

std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\r";
  std::vector<std::string_view> words;
  for (auto begin = line.find_first_not_of(kBlanks); begin != line.npos;
       begin = line.find_first_not_of(kBlanks, begin)) {
    const auto end = std::min(line.find_first_of(kBlanks, begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const auto [code, length] = first_character(text);
    if (code == '\n' || code == '\t') {
      result += ' ';
    } else if (length == 0 || is_in(kHarmful, code)) {
      result += '?';
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(1, length));
  }
  return result;
}

std::string with_visible_escapes(std::string text) {
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x7F; };
  if (std::ranges::all_of(text, is_ascii)) return text;
  std::string result;
  result.reserve(text.size());
  for (std::string_view left = text; !left.empty();) {
    const auto [code, length] = first_character(left);
    const bool is_joiner = code >= kJoiners.first && code <= kJoiners.last;
    const bool is_between_members = code < 0x20;  // dump() leaves only line feeds
    if (is_between_members || !(is_joiner || is_in(kHarmful, code))) {
      result += left.substr(0, std::max<size_t>(1, length));
    } else if (code < 0x10000) {
      result += fmt::format("\\u{:04x}", static_cast<uint32_t>(code));
    } else {
      const auto above = static_cast<uint32_t>(code) - 0x10000;
      result += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (above >> 10), 0xDC00 + (above & 0x3FF));
    }
    left.remove_prefix(std::max<size_t>(1, length));
  }
  return result;
}

std::string printable_with_colours(std::string_view text) {
  std::string result;
  bool is_coloured = false;
  while (!text.empty()) {
    const auto escape = std::min(text.find("\x1b["), text.size());
    result += printable(text.substr(0, escape));
    text.remove_prefix(escape);
    if (text.empty()) break;
    const auto end = text.find_first_not_of("0123456789;:", 2);
    const bool is_colour = end != text.npos && text[end] == 'm';
    result += is_colour ? text.substr(0, end + 1) : "?";
    text.remove_prefix(is_colour ? end + 1 : 1);
    is_coloured |= is_colour;
  }
  return is_coloured ? result + "\x1b[0m" : result;
}

std::string random_digits(size_t num_digits) {
  std::array<unsigned char, 32> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != std::ssize(bytes)) throw system_error(errno, "getting random bytes");
  std::string digits;
  for (const auto byte : bytes) digits += fmt::format("{:02x}", byte);
  return digits.substr(0, num_digits);
}

int64_t display_width(std::string_view text) {
  int64_t width = 0;
  while (!text.empty()) {
    const auto [code, length] = first_character(text);
    width += width_of(code);
    text.remove_prefix(std::max<size_t>(1, length));
  }
  return width;
}

std::string fit(std::string_view text, int64_t width) {
  if (display_width(text) <= width) return std::string(text);
  if (width <= 0) return "";
  int64_t used = 0;
  size_t end = 0;
  while (end < text.size()) {
    const auto [code, length] = first_character(text.substr(end));
    if (used + width_of(code) > width - 1) break;
    used += width_of(code);
    end += std::max<size_t>(1, length);
  }
  return std::string(text.substr(0, end)) + "…";
}

std::string pad(std::string_view text, int64_t width, Align align) {
  auto result = fit(text, width);
  const auto missing = static_cast<size_t>(std::max<int64_t>(0, width - display_width(result)));
  return align == Align::kLeft ? result + std::string(missing, ' ') : std::string(missing, ' ') + result;
}

std::string_view base_name(std::string_view path) { return path.substr(path.find_last_of('/') + 1); }

}  // namespace yoke

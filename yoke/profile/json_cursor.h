// yoke/profile/json_cursor.h -- walks over JSON in memory without building a tree; accepts profilers' mistakes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace yoke::profile {

/// Traces are not always JSON: Kineto has written `"key": ,`, NaN, and control characters in names, and a run that was
/// killed leaves half a file. So values are found by brackets, quotes and commas alone; a missing value reads as an
/// empty one. A function that meets the end too early returns false or nullopt; do not use the cursor after that.
class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  /// The next character that is not white space; 0 at the end.
  char peek();
  /// Moves past `wanted` and returns true if it is the next character.
  bool take(char wanted);
  /// The text of a string between its quotes, still escaped; nullopt also if the next value is not a string.
  std::optional<std::string_view> string();
  /// Any value: a string with its quotes, a number, a whole object or array. Empty where a value is missing.
  std::optional<std::string_view> value();

  /// Calls `member(key)` for each member of the object that is next, with the cursor at the value. `member` must
  /// move past the value; it returns false to give up.
  template <class Member>
  bool object(Member member) {
    if (!take('{')) return false;
    while (!take('}')) {
      const auto key = string();
      if (!key || !take(':') || !member(*key)) return false;
      if (!take(',') && peek() != '}') return false;
    }
    return true;
  }

  const char* position() const { return at_; }

 private:
  const char* at_;
  const char* end_;
};

/// Replaces the escape sequences in `escaped`; returns it unchanged if one of them is invalid.
std::string unescape(std::string_view escaped);

/// Converts microseconds to whole nanoseconds; nullopt if `number` is not a number or is beyond 127 years.
std::optional<int64_t> parse_microseconds(std::string_view number);

/// A whole number; nullopt for anything else.
std::optional<int64_t> parse_integer(std::string_view number);

}  // namespace yoke::profile

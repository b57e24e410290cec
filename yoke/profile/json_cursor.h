// yoke/profile/json_cursor.h -- reads JSON in memory without building a tree, and accepts the mistakes of profilers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace yoke::profile {

/// Traces are not always valid JSON. Kineto has written `"key": ,`, NaN, and control characters in names, and a killed
/// run leaves half a file. So the cursor finds values only by brackets, quotes and commas; a missing value is read as
/// an empty one. If a function reaches the end too early, it returns false or nullopt; do not use the cursor after
/// that.
class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  /// Returns the next character that is not white space; 0 at the end.
  char peek();
  /// If `wanted` is the next character, moves past it and returns true.
  bool take(char wanted);
  /// Returns the text of a string between its quotes, still escaped; nullopt if the next value is not a string.
  std::optional<std::string_view> string();
  /// Returns any value: a string with its quotes, a number, a whole object or array. Empty if the value is missing.
  std::optional<std::string_view> value();

  /// Calls `member(key)` for each member of the next object, with the cursor at the member's value. `member` must move
  /// past the value; it returns false to stop.
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
  /// Whether a function looked for more text than there is. If not, more text would not change its result.
  bool is_short() const { return is_short_; }

 private:
  const char* at_;
  const char* end_;
  bool is_short_ = false;
};

/// Replaces the escape sequences in `escaped`; returns it unchanged if one of them is invalid.
std::string unescape(std::string_view escaped);

/// Converts microseconds to whole nanoseconds; nullopt if `number` is not a number or is beyond 127 years.
std::optional<int64_t> parse_microseconds(std::string_view number);

}  // namespace yoke::profile

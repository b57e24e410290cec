#include <algorithm>
#include <cctype>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "yoke/base/text.h"
#include "yoke/slurm/words/values.h"

namespace yoke::slurm::check {
namespace {

/// Reads a time as Slurm's parse_time() does, without a clock.
class TimeReader {
 public:
  explicit TimeReader(std::string_view text) : text_(text) {}

  bool read() {
    if (takes("uts")) return text_.size() > 3 + 6 && takes_number(7, 18, 1000000, INT64_MAX) && at_ == text_.size();
    bool has_part = false;
    while (at_ < text_.size()) {
      if (is_blank(peek()) || peek() == '-' || peek() == 'T') {
        ++at_;
      } else if (takes_any({"today", "tomorrow", "midnight", "noon", "elevenses", "fika", "teatime"})) {
        has_part = true;
      } else if (takes("now")) {
        if (!read_delta()) return false;
        has_part = true;
      } else if (is_digit(peek())) {
        const bool is_clock = peek(1) == ':' || peek(2) == ':';
        if (is_clock ? !read_clock() : !read_date()) return false;
        has_part = true;
      } else {
        return false;
      }
    }
    return has_part;
  }

 private:
  static bool is_blank(char c) { return c == ' ' || c == '\t'; }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  bool takes(std::string_view word) {
    const auto part = text_.substr(at_, word.size());
    const auto is_same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
    if (!std::equal(part.begin(), part.end(), word.begin(), word.end(), is_same)) return false;
    at_ += word.size();
    return true;
  }
  bool takes_any(std::initializer_list<std::string_view> words) {
    return std::ranges::any_of(words, [&](std::string_view word) { return takes(word); });
  }

  /// A number of `least` to `most` digits within [low, high].
  bool takes_number(size_t least, size_t most, int64_t low, int64_t high) {
    size_t length = 0;
    while (length < most && is_digit(peek(length))) ++length;
    if (length < least) return false;
    number_ = std::stoll(std::string(text_.substr(at_, length)));
    at_ += length;
    return number_ >= low && number_ <= high;
  }

  bool read_delta() {
    while (is_blank(peek())) ++at_;
    if (at_ == text_.size()) return true;
    if (peek() != '+' && peek() != '-') return false;
    ++at_;
    bool has_digit = false;
    while (at_ < text_.size()) {
      if (takes_any({"seconds", "second", "minutes", "minute", "hours", "hour", "days", "day", "weeks", "week"})) break;
      if (!is_blank(peek()) && !is_digit(peek())) return false;
      has_digit |= is_digit(peek());
      ++at_;
    }
    return has_digit;
  }

  bool read_clock() {
    if (!takes_number(1, 2, 0, 23) || peek() != ':') return false;
    const auto hour = number_;
    ++at_;
    if (!takes_number(2, 2, 0, 59)) return false;
    if (peek() == ':') {
      ++at_;
      if (!takes_number(2, 2, 0, 59)) return false;
    }
    while (is_blank(peek())) ++at_;
    return !takes_any({"am", "pm"}) || hour <= 12;
  }

  bool read_date() {
    if (peek(4) == '-' && peek(7) == '-') {
      if (!takes_number(4, 4, 0, 9999)) return false;
      ++at_;
      if (!takes_number(1, 2, 1, 12)) return false;
      ++at_;
      return takes_number(1, 2, 1, 31);
    }
    const auto skip_separator = [&] {
      if (peek() == '.' || peek() == '/') ++at_;
    };
    if (!takes_number(1, 2, 1, 12)) return false;
    skip_separator();
    if (!takes_number(1, 2, 1, 31)) return false;
    skip_separator();
    return !is_digit(peek()) || takes_number(2, 2, 0, 99);
  }

  std::string_view text_;
  size_t at_ = 0;
  int64_t number_ = 0;  ///< The last one that takes_number() read.
};

}  // namespace

bool is_time_value(std::string_view text) { return TimeReader(text).read(); }

}  // namespace yoke::slurm::check

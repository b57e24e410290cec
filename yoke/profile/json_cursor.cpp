#include "yoke/profile/json_cursor.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

namespace yoke::profile {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/// Returns the quote that ends a string; null if it is missing. `at` is the position after the string's first quote.
const char* end_of_string(const char* at, const char* end) {
  for (const char* from = at; from < end;) {
    const auto* quote = static_cast<const char*>(std::memchr(from, '"', static_cast<size_t>(end - from)));
    if (quote == nullptr) return nullptr;
    const char* before = quote;
    while (before > at && before[-1] == '\\') --before;
    if ((quote - before) % 2 == 0) return quote;
    from = quote + 1;
  }
  return nullptr;
}

}  // namespace

char JsonCursor::peek() {
  while (at_ < end_ && is_space(*at_)) ++at_;
  if (at_ < end_) return *at_;
  is_short_ = true;
  return '\0';
}

bool JsonCursor::take(char wanted) {
  if (peek() != wanted || at_ == end_) return false;
  ++at_;
  return true;
}

std::optional<std::string_view> JsonCursor::string() {
  if (!take('"')) return std::nullopt;
  const char* const quote = end_of_string(at_, end_);
  if (quote == nullptr) {
    is_short_ = true;
    return std::nullopt;
  }
  const std::string_view text(at_, static_cast<size_t>(quote - at_));
  at_ = quote + 1;
  return text;
}

std::optional<std::string_view> JsonCursor::value() {
  const char first = peek();
  const char* const begin = at_;
  const auto taken = [&] { return std::string_view(begin, static_cast<size_t>(at_ - begin)); };
  if (first == '"') return string() ? std::optional(taken()) : std::nullopt;
  if (first != '{' && first != '[') {
    while (at_ < end_ && *at_ != ',' && *at_ != '}' && *at_ != ']' && !is_space(*at_)) ++at_;
    if (at_ < end_) return taken();
    is_short_ = true;  // a number may be incomplete
    return std::nullopt;
  }
  for (int64_t depth = 0; at_ < end_; ++at_) {
    if (*at_ == '"') {
      at_ = end_of_string(at_ + 1, end_);
      if (at_ == nullptr) break;
    } else if (*at_ == '{' || *at_ == '[') {
      ++depth;
    } else if ((*at_ == '}' || *at_ == ']') && --depth == 0) {
      ++at_;
      return taken();
    }
  }
  at_ = end_;
  is_short_ = true;
  return std::nullopt;
}

std::string unescape(std::string_view escaped) {
  if (escaped.find('\\') == escaped.npos) return std::string(escaped);
  const auto parsed = nlohmann::json::parse('"' + std::string(escaped) + '"', nullptr, false);
  return parsed.is_string() ? parsed.get<std::string>() : std::string(escaped);
}

std::optional<int64_t> parse_microseconds(std::string_view number) {
  constexpr double kLimit = 4e15;  // 127 years; the sum of two such times fits in int64
  const char* const end = number.data() + number.size();
  int64_t whole = 0;
  auto [at, error] = std::from_chars(number.data(), end, whole);
  if (error == std::errc() && std::abs(static_cast<double>(whole)) < kLimit) {
    int64_t fraction = 0, digit = 100;  // a double would round Kineto's nanoseconds
    if (at < end && *at == '.') {
      for (++at; at < end && *at >= '0' && *at <= '9'; ++at, digit /= 10) fraction += (*at - '0') * digit;
    }
    if (at == end) return whole * 1000 + (number[0] == '-' ? -fraction : fraction);
  }
  double value = 0;
  const auto [rest, failure] = std::from_chars(number.data(), end, value);
  if (failure != std::errc() || rest != end || !(std::abs(value) < kLimit)) return std::nullopt;
  return static_cast<int64_t>(value * 1000);
}

}  // namespace yoke::profile

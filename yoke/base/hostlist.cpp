#include "yoke/base/hostlist.h"

#include <fmt/format.h>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke {
namespace {

constexpr size_t kMaxHosts = 65'536;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::vector<std::string> parse() {
    std::vector<std::string> hosts;
    while (true) {
      for (auto& host : parse_name()) hosts.push_back(std::move(host));
      if (hosts.size() > kMaxHosts) fail("more than 65536 hosts");
      if (at_end()) return hosts;
      expect(',');
    }
  }

 private:
  bool at_end() const { return position_ == text_.size(); }

  [[noreturn]] void fail(std::string_view why) const {
    throw Error(ErrorCode::kInvalidArgument, "host list '{}': {} at character {}", text_, why, position_ + 1);
  }

  void expect(char wanted) {
    if (at_end() || text_[position_] != wanted) fail(fmt::format("expected '{}'", wanted));
    ++position_;
  }

  /// Parses one name with its bracket groups, up to a comma outside brackets.
  std::vector<std::string> parse_name() {
    std::vector<std::string> names = {""};
    const size_t start = position_;
    while (!at_end() && text_[position_] != ',') {
      const std::vector<std::string> parts =
          text_[position_] == '[' ? parse_group() : std::vector<std::string>{parse_literal()};
      if (names.size() * parts.size() > kMaxHosts) fail("more than 65536 hosts");
      std::vector<std::string> longer;
      longer.reserve(names.size() * parts.size());
      for (const auto& name : names) {
        for (const auto& part : parts) longer.push_back(name + part);
      }
      names = std::move(longer);
    }
    if (position_ == start) fail("a name is empty");
    return names;
  }

  std::string parse_literal() {
    const size_t end = std::min(text_.find_first_of("[],", position_), text_.size());
    if (end == position_) fail("unexpected ']'");
    std::string literal(text_.substr(position_, end - position_));
    position_ = end;
    return literal;
  }

  std::vector<std::string> parse_group() {
    expect('[');
    std::vector<std::string> parts;
    while (true) {
      parse_range(parts);
      if (!at_end() && text_[position_] == ']') break;
      expect(',');
    }
    expect(']');
    return parts;
  }

  void parse_range(std::vector<std::string>& parts) {
    const std::string_view low_text = parse_digits();
    const int64_t low = *parse_int(low_text);
    int64_t high = low;
    if (!at_end() && text_[position_] == '-') {
      ++position_;
      high = *parse_int(parse_digits());
    }
    if (high < low || high - low >= static_cast<int64_t>(kMaxHosts)) fail("bad range");
    for (int64_t number = low; number <= high; ++number) {
      parts.push_back(fmt::format("{:0{}}", number, low_text.size()));
    }
    if (parts.size() > kMaxHosts) fail("more than 65536 hosts");
  }

  std::string_view parse_digits() {
    const size_t end = std::min(text_.find_first_not_of("0123456789", position_), text_.size());
    const auto digits = text_.substr(position_, end - position_);
    if (digits.empty() || digits.size() > 18) fail("expected a number");
    position_ = end;
    return digits;
  }

  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace

std::vector<std::string> expand_hostlist(std::string_view text) { return Parser(text).parse(); }

std::vector<int64_t> expand_counts(std::string_view text) {
  std::vector<int64_t> counts;
  for (const auto item : split(text, ',')) {
    const auto open = item.find("(x");
    const auto count = parse_int(item.substr(0, open));
    std::optional<int64_t> repeat = 1;
    if (open != item.npos) {
      if (!item.ends_with(')')) return {};
      repeat = parse_int(item.substr(open + 2, item.size() - open - 3));
    }
    const auto room = static_cast<int64_t>(kMaxHosts - counts.size());
    if (!count || *count < 0 || !repeat || *repeat < 1 || *repeat > room) return {};
    counts.insert(counts.end(), static_cast<size_t>(*repeat), *count);
  }
  return counts;
}

}  // namespace yoke

#include "yoke/base/quantity.h"

#include <charconv>
#include <cmath>

namespace yoke {
namespace {

/// Removes a number from the beginning of `text`. nullopt: there is none, or it is too large.
std::optional<int64_t> take_number(std::string_view& text) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t number = 0;
  const auto* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop == text.data() || number < 0 || number > kMost) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return number;
}

int64_t seconds_of_unit(char unit) {
  switch (unit) {
    case 's': return 1;
    case 'm': return 60;
    case 'h': return 3600;
    case 'd': return 86'400;
    default: return 0;
  }
}

}  // namespace

std::optional<double> parse_real(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::chrono::seconds> parse_length(std::string_view text) {
  constexpr int64_t kTenYears = int64_t{3653} * 86'400;
  int64_t total = 0, smallest = kTenYears;
  while (!text.empty()) {
    const auto number = take_number(text);
    if (!number || *number > kTenYears) return std::nullopt;
    int64_t unit = 1;
    if (!text.empty()) {
      unit = seconds_of_unit(text[0]);
      text.remove_prefix(1);
    } else if (total > 0) {
      return std::nullopt;  // "4h30"
    }
    if (unit == 0 || unit >= smallest) return std::nullopt;  // an unknown unit, or "30m4h"
    smallest = unit;
    total += *number * unit;
    if (total > kTenYears) return std::nullopt;
  }
  return total > 0 ? std::optional(std::chrono::seconds(total)) : std::nullopt;
}

std::optional<int64_t> parse_memory(std::string_view text) {
  const auto number = take_number(text);
  if (!number) return std::nullopt;
  double part = 0;  // of a unit
  if (text.starts_with('.')) {
    double scale = 0.1;
    size_t count = 1;
    for (; count < text.size() && text[count] >= '0' && text[count] <= '9'; ++count, scale /= 10) {
      part += (text[count] - '0') * scale;
    }
    if (count == 1) return std::nullopt;
    text.remove_prefix(count);
  }
  int shift = -1;
  if (text == "B") shift = 0;
  if (text == "KiB") shift = 10;
  if (text == "MiB") shift = 20;
  if (text == "GiB") shift = 30;
  if (text == "TiB") shift = 40;
  constexpr int64_t kMost = int64_t{1} << 60;
  if (shift < 0 || *number > (kMost >> shift)) return std::nullopt;
  if (shift == 0 && part > 0) return std::nullopt;
  const auto bytes = (*number << shift) + static_cast<int64_t>(part * static_cast<double>(int64_t{1} << shift));
  return bytes > 0 && bytes <= kMost ? std::optional(bytes) : std::nullopt;
}

}  // namespace yoke

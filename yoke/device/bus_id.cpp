#include "yoke/device/bus_id.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace yoke::device {
namespace {

/// Takes a hexadecimal number with at most `most_digits` digits from the beginning of `text`.
std::optional<uint32_t> take_hex(std::string_view& text, size_t most_digits) {
  uint32_t number = 0;
  const auto* const begin = text.data();
  const auto [end, error] = std::from_chars(begin, begin + std::min(text.size(), most_digits), number, 16);
  if (error != std::errc() || end == begin) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - begin));
  return number;
}

bool take(std::string_view& text, char expected) {
  if (text.empty() || text.front() != expected) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::optional<std::string> parse_bus_id(std::string_view text) {
  std::optional<uint32_t> domain = 0;
  if (std::ranges::count(text, ':') == 2) {
    domain = take_hex(text, 8);
    if (!take(text, ':')) return std::nullopt;
  }
  if (text.size() < 5 || text[2] != ':') return std::nullopt;  // "c1:00"
  const auto bus = take_hex(text, 2);
  take(text, ':');
  const auto before = text.size();
  const auto slot = take_hex(text, 2);
  if (before - text.size() != 2) return std::nullopt;
  std::optional<uint32_t> function = 0;
  if (take(text, '.')) function = take_hex(text, 1);
  if (!domain || !bus || !slot || !function || !text.empty()) return std::nullopt;
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", *domain, *bus, *slot, *function);
}

}  // namespace yoke::device

#include "yoke/curve/detail/values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

namespace yoke::curve {
namespace {

constexpr PlaceName kPlaceNames[] = {
    {"global_step", &Position::step},  // Lightning, Hugging Face; beside it, `step` is one of an epoch
    {"step", &Position::step},        {"_step", &Position::step},  // Weights & Biases, as `_timestamp`
    {"iteration", &Position::step},   {"epoch", &Position::epoch},    {"time", &Position::time},
    {"_timestamp", &Position::time},  {"wall_time", &Position::time},
};

/// REQUIRES: `lower` has no capital letters.
bool is_equal_in_any_case(std::string_view text, std::string_view lower) {
  return std::ranges::equal(text, lower,
                            [](char a, char b) { return a == b || (b >= 'a' && b <= 'z' && a == b - 32); });
}

}  // namespace

std::optional<double> number_of(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size() || text.empty()) return std::nullopt;
  if (error == std::errc()) return number;
  const bool is_small = text.find("e-") != text.npos || text.find("E-") != text.npos;  // too small for a double
  return is_small ? 0 : text.starts_with('-') ? -HUGE_VAL : HUGE_VAL;
}

const PlaceName* place_name(std::string_view name) {
  const auto found =
      std::ranges::find_if(kPlaceNames, [&](const PlaceName& known) { return is_equal_in_any_case(name, known.name); });
  return found == std::end(kPlaceNames) ? nullptr : found;
}

}  // namespace yoke::curve

// yoke/curve/detail/values.h -- what the parsers of text have in common: numbers, lines, and the names of places. Pure.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>

#include "yoke/curve/log.h"

namespace yoke::curve {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Parses a number, "nan", "inf" or "Infinity", with or without a sign. A number too large becomes infinite.
std::optional<double> number_of(std::string_view text);

/// A name that a program gives to steps, epochs or times. If a record has several of one kind, the first one in the
/// table counts, and the others are neither places nor metrics.
struct PlaceName {
  std::string_view name;
  double Position::*place;
};
/// Returns nullptr if `name`, in any case, is that of a metric. Pointers into the table can be compared.
const PlaceName* place_name(std::string_view name);

/// Calls `take` for every complete line. If `is_end`, calls `take_last` for a last line without a line feed. Returns
/// the length of the lines for which `take` or `take_last` was called.
template <class Take, class TakeLast>
size_t take_lines(std::string_view bytes, char line_end, bool is_end, const Take& take, const TakeLast& take_last) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // UTF-8; spreadsheets write it first
  size_t begin = bytes.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  for (size_t end = bytes.find(line_end, begin); end != bytes.npos;
       begin = end + 1, end = bytes.find(line_end, begin)) {
    take(bytes.substr(begin, end - begin));
  }
  if (!is_end) return begin;
  if (begin < bytes.size()) take_last(bytes.substr(begin));
  return bytes.size();
}

}  // namespace yoke::curve

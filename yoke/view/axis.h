// yoke/view/axis.h -- ranges of values, and the round numbers that label them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::view {

/// A round number of seconds that divides `duration` into at most `max_parts` parts.
double tick_seconds(double duration, int64_t max_parts);
std::string time_label(double seconds);

struct Tick {
  double value = 0;
  std::string label;
};

/// The range of values along one side of a plot.
class Axis {
 public:
  enum class Kind { kLinear, kLog, kTime };

  /// `min` and `max` are finite; for kLog they are positive. A range of one value is widened.
  Axis(Kind kind, double min, double max);

  /// Where a value of the range lies, from 0 to 1.
  double fraction(double value) const;

  /// Round values within the range, ascending: about `wanted` of them, but at least one. Their labels differ.
  std::vector<Tick> ticks(int64_t wanted) const;

 private:
  Kind kind_;
  double min_, max_;  // logarithms for kLog
};

}  // namespace yoke::view

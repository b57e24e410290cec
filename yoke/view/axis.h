// yoke/view/axis.h -- ranges of values, and round numbers to label them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::view {

/// Returns a round number of seconds that divides `duration` into at most `max_parts` parts.
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

  /// `min` and `max` must be finite, and positive for kLog. A range of a single value is widened.
  Axis(Kind kind, double min, double max);

  /// Returns the position of a value in the range, from 0 to 1.
  double fraction(double value) const;

  /// Returns round values within the range, ascending: about `wanted` of them, but at least one. All labels differ.
  std::vector<Tick> ticks(int64_t wanted) const;

 private:
  Kind kind_;
  double min_, max_;  // logarithms for kLog
};

}  // namespace yoke::view

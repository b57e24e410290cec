// yoke/tune/fit.h -- how time and memory depend on the batch size: t(B) = a + bB, m(B) = c + dB. Pure.
#pragma once

#include <optional>
#include <span>

namespace yoke::tune {

struct Point {
  double batch = 0;
  double value = 0;
};

struct Line {
  double fixed = 0;       ///< a: what a step takes whatever its batch is.
  double per_sample = 0;  ///< b

  double at(double batch) const { return fixed + per_sample * batch; }
};

/// The line whose relative errors are smallest, where points far from the others count less. Both values are at least
/// 0. Returns nullopt for fewer than two different batches.
std::optional<Line> fit_time(std::span<const Point> points);

/// A careful line for memory: it passes through the point with the largest batch, and its slope is the larger one of
/// the whole and of the last two points. With one point, all memory is taken to grow with the batch. nullopt: no
/// points. REQUIRES: ascending batches.
std::optional<Line> fit_memory(std::span<const Point> points);

}  // namespace yoke::tune

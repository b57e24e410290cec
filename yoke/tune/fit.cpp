#include "yoke/tune/fit.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace yoke::tune {
namespace {

/// Least squares with a weight for each point.
Line weighted_line(std::span<const Point> points, std::span<const double> weights) {
  double sum = 0, sum_x = 0, sum_y = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    sum += weights[i];
    sum_x += weights[i] * points[i].batch;
    sum_y += weights[i] * points[i].value;
  }
  const double mean_x = sum_x / sum, mean_y = sum_y / sum;
  double variance = 0, covariance = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    const double x = points[i].batch - mean_x;
    variance += weights[i] * x * x;
    covariance += weights[i] * x * (points[i].value - mean_y);
  }
  const double slope = std::max(0.0, covariance / variance);
  const double fixed = mean_y - slope * mean_x;
  return fixed >= 0 ? Line{fixed, slope} : Line{0, mean_y / mean_x};
}

bool has_two_batches(std::span<const Point> points) {
  return std::ranges::any_of(points, [&](const Point& point) { return point.batch != points.front().batch; });
}

}  // namespace

std::optional<Line> fit_time(std::span<const Point> points) {
  if (points.empty() || !has_two_batches(points)) return std::nullopt;
  std::vector<double> weights;
  for (const auto& point : points) weights.push_back(1 / (point.value * point.value));
  Line line = weighted_line(points, weights);
  for (int round = 0; round < 10; ++round) {  // iteratively reweighted least squares with Huber's weights
    std::vector<double> errors;
    for (const auto& point : points) errors.push_back(std::abs(line.at(point.batch) / point.value - 1));
    auto sorted = errors;
    std::ranges::sort(sorted);
    const double typical = std::max(0.005, 1.5 * sorted[sorted.size() / 2]);
    for (size_t i = 0; i < points.size(); ++i) {
      weights[i] = std::min(1.0, typical / std::max(1e-12, errors[i])) / (points[i].value * points[i].value);
    }
    line = weighted_line(points, weights);
  }
  return line;
}

std::optional<Line> fit_memory(std::span<const Point> points) {
  if (points.empty()) return std::nullopt;
  const auto& last = points.back();
  double slope = last.value / last.batch;
  if (has_two_batches(points)) {
    const auto& before = points[points.size() - 2];
    const std::vector<double> weights(points.size(), 1);
    slope = std::max(
        {0.0, (last.value - before.value) / (last.batch - before.batch), weighted_line(points, weights).per_sample});
  }
  return Line{last.value - slope * last.batch, slope};
}

}  // namespace yoke::tune

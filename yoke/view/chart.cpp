#include "yoke/view/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "yoke/view/chart_parts.h"

namespace yoke::view {
namespace {

bool is_drawn(double y, bool has_log_y) { return std::isfinite(y) && (!has_log_y || y > 0); }

struct Range {
  double min = std::numeric_limits<double>::infinity(), max = -std::numeric_limits<double>::infinity();

  void add(double value) {
    min = std::min(min, value);
    max = std::max(max, value);
  }
  bool is_empty() const { return min > max; }
};

/// Returns the range over all panels with this axis, so that equal x are one below the other in all panels.
Range x_range(const Chart& chart, const std::string& x_title) {
  Range range;
  for (const auto& panel : chart.panels) {
    if (panel.x_title != x_title) continue;
    for (const auto& line : panel.lines) {
      if (line.points.empty()) continue;
      range.add(line.points.front().x);
      range.add(line.points.back().x);
    }
  }
  return range;
}

}  // namespace

void smooth(std::vector<ChartPoint>& points, double weight) {
  double mean = 0, total = 0;
  for (auto& point : points) {
    if (!std::isfinite(point.y)) continue;
    total = total * weight + (1 - weight);
    mean = mean * weight + point.y * (1 - weight);
    point.y = mean / total;
  }
}

std::vector<std::vector<ChartPoint>> reduce(const std::vector<ChartPoint>& points, bool has_log_y, double min_x,
                                            double max_x, int64_t num_columns) {
  std::vector<std::vector<ChartPoint>> parts;
  const auto columns = static_cast<double>(num_columns);
  const double scale = max_x > min_x ? columns / (max_x - min_x) : 0;
  bool is_broken = true;
  int64_t column = 0;
  std::array<size_t, 4> kept{};  // indices of the column's first, smallest, largest and last point
  bool has_kept = false;
  const auto flush = [&] {
    if (!has_kept) return;
    std::ranges::sort(kept);
    for (size_t i = 0; i < kept.size(); ++i) {
      if (i == 0 || kept[i] != kept[i - 1]) parts.back().push_back(points[kept[i]]);
    }
    has_kept = false;
  };
  for (size_t i = 0; i < points.size(); ++i) {
    const auto& [x, y] = points[i];
    if (!is_drawn(y, has_log_y)) {
      is_broken = true;
      continue;
    }
    const auto here = static_cast<int64_t>(std::min(columns - 1, (x - min_x) * scale));
    if (!has_kept || here != column) {
      flush();
      // Gaps within a column are not visible, but would make each point a separate part.
      if (is_broken) parts.emplace_back();
      kept = {i, i, i, i};
      has_kept = true;
      column = here;
    } else {
      if (y < points[kept[1]].y) kept[1] = i;
      if (y > points[kept[2]].y) kept[2] = i;
      kept[3] = i;
    }
    is_broken = false;
  }
  flush();
  return parts;
}

std::optional<PanelPlot> plot_of(const Chart& chart, const ChartPanel& panel, int64_t num_columns) {
  const auto range = x_range(chart, panel.x_title);
  Range values;
  for (const auto& line : panel.lines) {
    for (const auto& point : line.points) {
      if (is_drawn(point.y, chart.has_log_y)) values.add(point.y);
    }
  }
  if (values.is_empty()) return std::nullopt;
  const auto kind = panel.x_is_time ? Axis::Kind::kTime : panel.x_is_log ? Axis::Kind::kLog : Axis::Kind::kLinear;
  PanelPlot plot{.x = Axis(kind, range.min, range.max),
                 .y = Axis(chart.has_log_y ? Axis::Kind::kLog : Axis::Kind::kLinear, values.min, values.max)};
  for (const auto& line : panel.lines) {
    std::vector<std::vector<ChartPoint>> parts;
    if (panel.x_is_log) {  // columns of pixels then have equal ranges of the logarithm
      auto points = line.points;
      for (auto& point : points) point.x = std::log10(point.x);
      parts = reduce(points, chart.has_log_y, std::log10(range.min), std::log10(range.max), num_columns);
    } else {
      parts = reduce(line.points, chart.has_log_y, range.min, range.max, num_columns);
    }
    for (auto& part : parts) {
      for (auto& point : part) {
        const double x = panel.x_is_log ? std::pow(10, point.x) : point.x;
        point = {plot.x.fraction(x), plot.y.fraction(point.y)};
      }
    }
    plot.lines.push_back(std::move(parts));
  }
  return plot;
}

std::string summary_of(const Chart& chart, const ChartLine& line) {
  Range values;
  double last = 0;
  int64_t num_not_finite = 0, num_not_positive = 0;
  for (const auto& point : line.points) {
    if (!std::isfinite(point.y)) {
      ++num_not_finite;
    } else if (chart.has_log_y && point.y <= 0) {
      ++num_not_positive;
    } else {
      values.add(point.y);
      last = point.y;
    }
  }
  const auto count = [](int64_t number, const char* what) {
    return number == 0 ? "" : fmt::format(", {} not {}", number, what);
  };
  return (values.is_empty() ? "nothing to draw"
                            : fmt::format("last {:.4g}, {:.4g} to {:.4g}", last, values.min, values.max)) +
         count(num_not_finite, "finite") + count(num_not_positive, "above 0");
}

}  // namespace yoke::view

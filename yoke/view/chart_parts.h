// yoke/view/chart_parts.h -- functions that all three drawings of a chart use.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/view/axis.h"
#include "yoke/view/chart.h"

namespace yoke::view {

inline constexpr size_t kNumChartColors = 6;

/// The data of a panel for drawing: x and y are from 0 (left, bottom) to 1.
struct PanelPlot {
  Axis x, y;
  std::vector<std::vector<std::vector<ChartPoint>>> lines;  ///< For each line, its parts between gaps.
};

/// Returns nullopt if no line of the panel has a value to draw.
std::optional<PanelPlot> plot_of(const Chart& chart, const ChartPanel& panel, int64_t num_columns);

/// Returns text such as "last 0.25, 0.25 to 0.75, 3 not finite".
std::string summary_of(const Chart& chart, const ChartLine& line);

/// Calls `set` with every grid point on the line between two points.
template <class Set>
void trace(double x1, double y1, double x2, double y2, const Set& set) {
  const auto count = std::max<int64_t>(1, std::llround(std::max(std::fabs(x2 - x1), std::fabs(y2 - y1))));
  for (int64_t i = 0; i <= count; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(count);
    set(std::llround(x1 + share * (x2 - x1)), std::llround(y1 + share * (y2 - y1)));
  }
}

}  // namespace yoke::view

// yoke/view/chart.h -- lines over a common axis, for the terminal, as SVG and as PNG. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::view {

struct ChartPoint {
  double x = 0, y = 0;
};

struct ChartLine {
  std::string name;
  std::vector<ChartPoint> points;  ///< Finite x, ascending. A y that is not finite is a gap.
};

/// Lines that share their axes.
struct ChartPanel {
  std::string title;
  std::string x_title;
  bool x_is_time = false;  ///< x is in seconds.
  bool x_is_log = false;   ///< Whether the axis is logarithmic. If so, every x must be above zero.
  std::vector<ChartLine> lines;
};

struct Chart {
  bool has_log_y = false;  ///< Whether the y axis is logarithmic. If so, values that are not above zero are gaps.
  std::vector<ChartPanel> panels;  ///< One below the other. Panels with the same `x_title` have the same range of x.
};

struct ChartTextOptions {
  int64_t width = 80;   ///< Width of the lines, in characters.
  int64_t height = 16;  ///< Rows of each panel's plot.
  bool is_ascii = false;
  bool is_colored = false;
};

/// Draws each panel as a title, a legend with one line for each of its lines, and the plot in Braille characters. If
/// colours do not distinguish the lines, each line is drawn with its own letter.
std::string chart_text(const Chart& chart, const ChartTextOptions& options);

struct ChartSize {
  double width = 880, height = 240;  ///< Width of the page, and height of each panel's plot.
};

/// Draws a chart for a web page. The SVG has no scripts and no external fonts, and suits light and dark backgrounds.
std::string chart_svg(const Chart& chart, const ChartSize& size);

/// Returns the drawing of chart_svg() as a PNG file with two pixels per unit of `size`, on white, in the font of
/// font.h. Errors  kInvalidArgument if it has more pixels than an image may have.
std::string chart_png(const Chart& chart, const ChartSize& size);

/// Replaces y by the exponential mean that TensorBoard draws. Each value weighs `weight`, in [0, 1), times as much as
/// the next value. The first values are not biased towards zero. Values that are not finite are skipped and stay.
void smooth(std::vector<ChartPoint>& points, double weight);

/// Returns fewer points that draw the same line as `points` if the range of x is `num_columns` pixels wide: the first,
/// the smallest, the largest and the last point of each column of pixels. The line is divided at gaps into parts.
std::vector<std::vector<ChartPoint>> reduce(const std::vector<ChartPoint>& points, bool has_log_y, double min_x,
                                            double max_x, int64_t num_columns);

}  // namespace yoke::view

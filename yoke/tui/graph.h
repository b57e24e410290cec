// yoke/tui/graph.h -- draws bars and history graphs into a canvas.
#pragma once

#include <optional>

#include "yoke/device/history.h"
#include "yoke/tui/canvas.h"

namespace yoke::tui {

enum class Glyphs { kUnicode, kAscii };

/// A bar of `width` cells; empty if there is no value.
struct Bar {
  int64_t width = 0;
  std::optional<double> percent;
  Style style = Style::kUtilization;
};
void draw_bar(Canvas& canvas, Point at, const Bar& bar, Glyphs glyphs);

/// The latest samples of `history` (percent), the newest at the right edge. A cell shows two samples, or one in ASCII.
/// The graph is filled or a line. Zero is a line at the bottom. A sample with an unknown value leaves its cell empty.
struct Graph {
  Style style = Style::kUtilization;
  bool is_filled = true;
};
void draw_graph(Canvas& canvas, const Rect& where, const device::History& history, const Graph& graph, Glyphs glyphs);

}  // namespace yoke::tui

#include "yoke/tui/graph.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "yoke/view/braille.h"

namespace yoke::tui {
namespace {

/// Returns how many of `height` levels are filled. A value that is not rounded to zero fills at least one.
int64_t levels(double percent, int64_t height) {
  if (!(percent >= 0.5)) return 0;
  return std::clamp<int64_t>(std::llround(percent / 100 * static_cast<double>(height)), 1, height);
}

/// The dots of one column of a graph: from `low` to `high`, counted from 1 at the bottom. If `high` is 0, there are
/// none.
struct Dots {
  int64_t low = 1, high = 0;

  bool has(int64_t dot) const { return dot >= low && dot <= high; }
};

/// Returns a Braille character. `below` is the number of dots below it.
std::string braille_of(const Dots& left, const Dots& right, int64_t below) {
  uint8_t dots = 0;
  for (int64_t row = 0; row < 4; ++row) {
    if (left.has(below + 1 + row)) dots |= view::braille_dot(0, row);
    if (right.has(below + 1 + row)) dots |= view::braille_dot(1, row);
  }
  return view::braille(dots);
}

constexpr int64_t kAsciiLevels = 3;  ///< The number of levels in a cell.

const char* ascii(const Dots& dots, int64_t below, bool is_filled) {
  const auto top = std::min(dots.high - below, kAsciiLevels);
  if (top < 1 || dots.low > below + kAsciiLevels) return " ";
  constexpr std::array kFilled = {".", ":", "|"}, kLine = {"_", "-", "\""};
  const bool goes_through = dots.high > below + kAsciiLevels;
  return is_filled || goes_through ? kFilled[static_cast<size_t>(top - 1)] : kLine[static_cast<size_t>(top - 1)];
}

}  // namespace

void draw_bar(Canvas& canvas, Point at, const Bar& bar, Glyphs glyphs) {
  if (bar.width <= 0) return;
  const auto halves = levels(bar.percent.value_or(0), bar.width * 2);
  const bool is_ascii = glyphs == Glyphs::kAscii;
  for (int64_t i = 0; i < bar.width; ++i) {
    const auto filled = std::clamp<int64_t>(halves - 2 * i, 0, 2);
    const Point point{at.x + i, at.y};
    if (filled == 0) {
      canvas.put(point, is_ascii ? "." : "─", Style::kDim);
    } else {
      canvas.put(point, is_ascii ? "#" : filled == 2 ? "━" : "╸", bar.style);
    }
  }
}

void draw_graph(Canvas& canvas, const Rect& where, const device::History& history, const Graph& graph, Glyphs glyphs) {
  const auto& samples = history.samples();
  const bool is_ascii = glyphs == Glyphs::kAscii;
  const int64_t per_cell = is_ascii ? 1 : 2, dots_per_cell = is_ascii ? kAsciiLevels : 4;
  const auto num_samples = static_cast<int64_t>(samples.size());
  const auto level_at = [&](int64_t column) -> int64_t {  // 0 if there is no sample, or its value is not known
    const auto i = num_samples - where.width * per_cell + column;
    if (i < 0 || i >= num_samples || !samples[static_cast<size_t>(i)].value) return 0;
    return std::max<int64_t>(1, levels(*samples[static_cast<size_t>(i)].value, where.height * dots_per_cell));
  };
  const auto dots_at = [&](int64_t column) -> Dots {
    const auto level = level_at(column);
    if (graph.is_filled || level == 0) return {1, level};
    const auto before = level_at(column - 1);  // the line continues from the level of the column before
    return before == 0 ? Dots{level, level} : Dots{std::min(level, before + 1), std::max(level, before - 1)};
  };
  for (int64_t x = 0; x < where.width; ++x) {
    const auto left = dots_at(x * per_cell), right = is_ascii ? left : dots_at(x * 2 + 1);
    const bool is_zero = left.high <= 1 && right.high <= 1;
    for (int64_t row = 0; row < where.height; ++row) {
      const auto below = row * dots_per_cell;
      const auto text = is_ascii ? std::string(ascii(left, below, graph.is_filled)) : braille_of(left, right, below);
      if (text != " ")
        canvas.put({where.x + x, where.y + where.height - 1 - row}, text, is_zero ? Style::kDim : graph.style);
    }
  }
}

}  // namespace yoke::tui

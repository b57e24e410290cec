// A chart for a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "yoke/base/text.h"
#include "yoke/view/braille.h"
#include "yoke/view/chart_parts.h"

namespace yoke::view {
namespace {

constexpr std::array<int, kNumChartColors> kTerminalColors = {36, 33, 32, 35, 31, 34};
constexpr std::string_view kLetters = "*o+x#@%abcdefghijk";

std::string in_color(std::string_view text, size_t line, bool is_colored) {
  if (!is_colored) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", kTerminalColors[line % kNumChartColors], text);
}

struct Signs {
  const char *tick, *side, *corner, *bottom, *bottom_tick;
};
constexpr Signs kUnicodeSigns{"┤", "│", "└", "─", "┬"}, kAsciiSigns{"+", "|", "+", "-", "+"};

/// The character cells of a plot, made of dots or of letters.
class Cells {
 public:
  Cells(int64_t width, int64_t height, bool has_dots)
      : width_(width), height_(height), has_dots_(has_dots), cells_(static_cast<size_t>(width * height)) {}

  int64_t num_columns() const { return width_ * (has_dots_ ? 2 : 1); }
  int64_t num_rows() const { return height_ * (has_dots_ ? 4 : 1); }

  /// `row` counts from the bottom.
  void set(int64_t column, int64_t row, size_t line) {
    if (column < 0 || column >= num_columns() || row < 0 || row >= num_rows()) return;
    auto& cell = at(has_dots_ ? column / 2 : column, has_dots_ ? row / 4 : row);
    if (has_dots_) cell.dots |= braille_dot(column % 2, row % 4);
    cell.line = static_cast<int64_t>(line);
  }

  std::string row(int64_t row, bool is_colored) const {
    std::string text, part;  // neighbouring cells of one line share one colour sequence
    int64_t line_of_part = -1;
    for (int64_t column = 0; column <= width_; ++column) {
      const auto cell = column < width_ ? cells_[static_cast<size_t>(row * width_ + column)] : Cell{};
      if (cell.line != line_of_part || column == width_) {
        text += line_of_part < 0 ? part : in_color(part, static_cast<size_t>(line_of_part), is_colored);
        part.clear();
        line_of_part = cell.line;
      }
      part += cell.line < 0 ? " "
              : has_dots_   ? braille(cell.dots)
                            : std::string(1, kLetters[static_cast<size_t>(cell.line) % kLetters.size()]);
    }
    return text.substr(0, text.find_last_not_of(' ') + 1);
  }

 private:
  struct Cell {
    uint8_t dots = 0;
    int64_t line = -1;
  };
  Cell& at(int64_t column, int64_t row) { return cells_[static_cast<size_t>(row * width_ + column)]; }

  int64_t width_, height_;
  bool has_dots_;
  std::vector<Cell> cells_;
};

std::string bounded(std::string_view text, int64_t width, bool is_ascii) {
  const auto shown = printable(text);
  if (!is_ascii) return fit(shown, width);
  std::string result;
  for (const char c : shown) {
    if ((static_cast<uint8_t>(c) & 0xc0) != 0x80) result += static_cast<uint8_t>(c) < 0x80 ? c : '?';
  }
  return result.substr(0, static_cast<size_t>(width));
}

/// Returns the row of labels below the columns of their ticks. Labels without enough room are left out.
std::string labels_below(const std::vector<Tick>& ticks, const std::vector<int64_t>& columns, int64_t width) {
  std::string text;
  for (size_t i = 0; i < ticks.size(); ++i) {
    const auto length = std::ssize(ticks[i].label);
    const auto begin = std::clamp<int64_t>(columns[i] - length / 2, 0, std::max<int64_t>(0, width - length));
    if (begin + length > width || (!text.empty() && begin < std::ssize(text) + 2)) continue;
    text.resize(static_cast<size_t>(begin), ' ');
    text += ticks[i].label;
  }
  return text;
}

std::string panel_text(const Chart& chart, const ChartPanel& panel, const ChartTextOptions& options) {
  const auto& signs = options.is_ascii ? kAsciiSigns : kUnicodeSigns;
  const bool has_dots = !options.is_ascii && (options.is_colored || panel.lines.size() <= 1);
  auto text = bounded(fmt::format("{} by {}", panel.title, panel.x_title), options.width, options.is_ascii) + '\n';
  for (size_t i = 0; i < panel.lines.size(); ++i) {
    const auto sign = has_dots ? "━━" : std::string(2, kLetters[i % kLetters.size()]);
    const auto room = std::max<int64_t>(0, options.width - 3);
    // The name is shortened to make room for the numbers.
    const auto summary = "  " + summary_of(chart, panel.lines[i]);
    const auto name_room = std::max<int64_t>(8, room - std::ssize(summary));
    const auto name = bounded(panel.lines[i].name, name_room, options.is_ascii);
    text += in_color(sign, i, options.is_colored) + " " + bounded(name + summary, room, options.is_ascii) + '\n';
  }
  const auto height = std::max<int64_t>(2, options.height);
  // A first plot determines the labels. Their width determines the remaining width for the final plot.
  auto plot = plot_of(chart, panel, options.width);
  if (!plot) return text;
  const auto y_ticks = plot->y.ticks(std::max<int64_t>(2, height / 3));
  int64_t label_width = 0;
  for (const auto& tick : y_ticks) label_width = std::max(label_width, std::ssize(tick.label));
  if (options.width < label_width + 12) label_width = 0;
  const auto width = std::max<int64_t>(1, options.width - label_width - 1);
  Cells cells(width, height, has_dots);
  plot = plot_of(chart, panel, cells.num_columns());
  const auto last_column = static_cast<double>(cells.num_columns() - 1);
  const auto last_row = static_cast<double>(cells.num_rows() - 1);
  for (size_t line = 0; line < plot->lines.size(); ++line) {
    const auto set = [&](int64_t column, int64_t row) { cells.set(column, row, line); };
    for (const auto& part : plot->lines[line]) {
      for (size_t i = 0; i < part.size(); ++i) {
        const auto &from = part[i == 0 ? 0 : i - 1], &to = part[i];
        trace(from.x * last_column, from.y * last_row, to.x * last_column, to.y * last_row, set);
      }
    }
  }
  const auto dots_in_row = cells.num_rows() / height, dots_in_column = cells.num_columns() / width;
  std::vector<std::string> labels(static_cast<size_t>(height));
  for (const auto& tick : y_ticks) {
    const auto row = std::llround(plot->y.fraction(tick.value) * last_row) / dots_in_row;
    if (row >= 0 && row < height) labels[static_cast<size_t>(row)] = tick.label;
  }
  for (int64_t row = height - 1; row >= 0; --row) {
    const auto& label = labels[static_cast<size_t>(row)];
    text += fmt::format("{:>{}}{}{}\n", label_width > 0 ? label : "", label_width,
                        label.empty() ? signs.side : signs.tick, cells.row(row, options.is_colored));
  }
  const auto x_ticks = plot->x.ticks(std::max<int64_t>(2, width / 14));
  std::vector<int64_t> columns;
  std::vector<const char*> bottom(static_cast<size_t>(width), signs.bottom);
  for (const auto& tick : x_ticks) {
    columns.push_back(std::llround(plot->x.fraction(tick.value) * last_column) / dots_in_column);
    if (columns.back() >= 0 && columns.back() < width) bottom[static_cast<size_t>(columns.back())] = signs.bottom_tick;
  }
  text += fmt::format("{:>{}}{}", "", label_width, signs.corner);
  for (const auto* sign : bottom) text += sign;
  return text + fmt::format("\n{:>{}}{}\n", "", label_width + 1, labels_below(x_ticks, columns, width));
}

}  // namespace

std::string chart_text(const Chart& chart, const ChartTextOptions& options) {
  std::string text;
  for (const auto& panel : chart.panels) text += (text.empty() ? "" : "\n") + panel_text(chart, panel, options);
  return text;
}

}  // namespace yoke::view

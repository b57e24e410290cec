#include "yoke/view/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "tests/support/lines.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/view/font.h"

namespace yoke::view {
namespace {

using test::lines_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

ChartLine falling(const std::string& name, double scale) {
  ChartLine line{.name = name, .points = {}};
  for (int i = 0; i <= 100; ++i) line.points.push_back({i * 10.0, scale / (1 + i / 10.0)});
  return line;
}

Chart chart_with(std::vector<ChartLine> lines) {
  return {.has_log_y = false, .panels = {{.title = "loss", .x_title = "step", .lines = std::move(lines)}}};
}

bool equal(const ChartPoint& one, const ChartPoint& other) { return one.x == other.x && one.y == other.y; }

TEST(Chart, TheTerminalShowsOneRun) {
  EXPECT_EQ(chart_text(chart_with({falling("a", 2)}), {.width = 44, .height = 6}),
            "loss by step\n"
            "━━ a  last 0.1818, 0.1818 to 2\n"
            "2┤⢣\n"
            " │ ⢇\n"
            " │  ⠑⢄\n"
            "1┤   ⠈⠒⠤⡀\n"
            " │      ⠈⠉⠒⠢⠤⢄⣀⣀\n"
            " │              ⠉⠉⠉⠉⠒⠒⠒⠒⠒⠢⠤⠤⠤⠤⠤⠤⠤⠤⠤⢄⣀⣀⣀⣀⣀⣀⣀⣀\n"
            " └┬───────┬───────┬────────┬───────┬───────┬\n"
            "  0      200     400      600     800   1000\n");
}

TEST(Chart, WithoutColoursRunsAreLetters) {
  auto chart = chart_with({falling("a", 2), falling("b", 1)});
  const auto text = chart_text(chart, {.width = 40, .height = 5, .is_ascii = true});
  EXPECT_EQ(text,
            "loss by step\n"
            "** a  last 0.1818, 0.1818 to 2\n"
            "oo b  last 0.09091, 0.09091 to 1\n"
            "2+*\n"
            " | **\n"
            "1+oo****\n"
            " | ooooooo************\n"
            " |        oooooooooooooooooooooooooooooo\n"
            " ++------------------+-----------------+\n"
            "  0                 500             1000\n");
  EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c > 0; }));
  EXPECT_THAT(chart_text(chart, {.width = 40, .height = 5, .is_colored = true}),
              testing::AllOf(HasSubstr("\x1b[36m"), HasSubstr("\x1b[33m"), Not(HasSubstr("*"))));
}

TEST(Chart, EveryLineFitsTheWidth) {
  auto chart = chart_with({falling("läuft\n\x1b[2J" + std::string(300, 'x'), 1e-9), falling("b", 1e300)});
  chart.panels.push_back(
      {.title = std::string(100, 't'), .x_title = "time", .x_is_time = true, .lines = {falling("", -1)}});
  for (const bool is_ascii : {false, true}) {
    for (int64_t width = 20; width < 130; width += 3) {
      const auto text = chart_text(chart, {.width = width, .height = 3, .is_ascii = is_ascii});
      EXPECT_THAT(text, Not(HasSubstr("\x1b")));
      for (const auto& line : lines_of(text)) EXPECT_LE(display_width(line), width) << line;
    }
  }
}

// Oracle: the extremes of each column, by definition.
TEST(Chart, NoPeakIsLost) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 100'000; ++i) points.push_back({i * 1.0, std::sin(i * 0.7) + (i == 77'777 ? 50 : 0)});
  constexpr int64_t kColumns = 64;
  const auto parts = reduce(points, false, 0, 99'999, kColumns);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_LE(parts[0].size(), 4u * kColumns);
  EXPECT_TRUE(std::ranges::is_sorted(parts[0], {}, &ChartPoint::x));
  for (int64_t column = 0; column < kColumns; ++column) {
    const auto extremes = [&](const std::vector<ChartPoint>& all) {
      std::pair<double, double> range{1e9, -1e9};
      for (const auto& point : all) {
        const auto here = std::min<int64_t>(kColumns - 1, static_cast<int64_t>(point.x / 99'999 * kColumns));
        if (here == column) range = {std::min(range.first, point.y), std::max(range.second, point.y)};
      }
      return range;
    };
    EXPECT_EQ(extremes(parts[0]), extremes(points)) << column;
  }
}

TEST(Chart, ALogarithmicAxisGivesEachFactorTheSameRoom) {
  ChartLine line{.name = "a", .points = {}};
  for (int i = 0; i <= 20; ++i) line.points.push_back({std::pow(2, i), static_cast<double>(i)});
  auto chart = chart_with({line});
  const ChartTextOptions options{.width = 44, .height = 8};
  const auto linear = chart_text(chart, options);
  chart.panels[0].x_is_log = true;
  const auto text = chart_text(chart, options);
  chart.panels[0].x_is_log = false;
  for (auto& point : chart.panels[0].lines[0].points) point.x = std::log2(point.x);
  const auto plot = [](const std::string& all) { return all.substr(0, all.rfind('\n', all.size() - 2)); };
  const auto without_axis = [&](const std::string& all) { return plot(all).substr(0, plot(all).rfind('\n')); };
  EXPECT_EQ(without_axis(text), without_axis(chart_text(chart, options)))
      << "it is drawn as the line over the logarithms";
  EXPECT_NE(without_axis(text), without_axis(linear));
  EXPECT_THAT(text.substr(text.rfind('\n', text.size() - 2)), HasSubstr("1000")) << "the labels are those of x";
}

TEST(Chart, WhatIsNotFiniteIsAGapAndCounted) {
  const std::vector<ChartPoint> points = {{0, 1}, {1, kNaN}, {2, 3}, {3, 4}, {4, -HUGE_VAL}, {5, -1}, {6, kNaN}};
  const auto parts = reduce(points, false, 0, 6, 1000);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_TRUE(equal(parts[0][0], {0, 1}) && equal(parts[1][1], {3, 4}) && equal(parts[2][0], {5, -1}));
  EXPECT_EQ(reduce(points, true, 0, 6, 1000).size(), 2u) << "a logarithmic axis has no -1";
  auto chart = chart_with({{"a", points}, {"b", {{0, kNaN}}}, {"c", {}}});
  const auto text = chart_text(chart, {.width = 60});
  EXPECT_THAT(text, HasSubstr("a  last -1, -1 to 4, 3 not finite\n"));
  EXPECT_THAT(text, HasSubstr("b  nothing to draw, 1 not finite\n"));
  chart.has_log_y = true;
  EXPECT_THAT(chart_text(chart, {.width = 60}), HasSubstr("a  last 4, 1 to 4, 3 not finite, 1 not above 0\n"));
  chart.panels[0].lines.erase(chart.panels[0].lines.begin());
  EXPECT_EQ(lines_of(chart_text(chart, {.width = 60})).size(), 3u) << "no plot of nothing";
  EXPECT_THAT(chart_svg(chart, {}), Not(HasSubstr("nan")));
}

// Oracle: TensorBoard's smoothing, which starts from zero and corrects the bias.
TEST(Chart, SmoothsAsTensorBoardDoes) {
  std::vector<ChartPoint> points = {{0, 1}, {1, kNaN}, {2, 3}, {3, 2}};
  smooth(points, 0.5);
  EXPECT_EQ(points[0].y, 1);
  EXPECT_TRUE(std::isnan(points[1].y));
  EXPECT_DOUBLE_EQ(points[2].y, (1 * 0.25 + 3 * 0.5) / 0.75);
  EXPECT_DOUBLE_EQ(points[3].y, (1 * 0.125 + 3 * 0.25 + 2 * 0.5) / 0.875);
}

TEST(Chart, TheDrawingQuotesNames) {
  const auto svg = chart_svg(chart_with({falling("<b>&\x1b[2J", 1), falling("b", 2)}), {});
  EXPECT_THAT(svg, HasSubstr("&lt;b&gt;&amp;?[2J"));
  EXPECT_THAT(svg, HasSubstr("class=\"l l1\""));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
  EXPECT_THAT(chart_svg({}, {}), testing::EndsWith("</svg>\n"));
}

TEST(Chart, ThePngHasItsSize) {
  const auto png = chart_png(chart_with({falling("a", 1)}), {.width = 300, .height = 100});
  EXPECT_EQ(png.substr(16, 4), std::string("\0\0\x02\x58", 4));  // twice 300
  EXPECT_LT(png.size(), 30'000u);
  EXPECT_THROW(chart_png(chart_with({falling("a", 1)}), {.width = 1e6, .height = 100}), Error);
}

TEST(Font, EveryLetterHasItsShape) {
  std::set<std::string> shapes;
  for (int letter = ' '; letter <= '~'; ++letter) {
    std::string shape;
    for (int64_t y = 0; y < kGlyphHeight; ++y) {
      for (int64_t x = 0; x < kGlyphWidth; ++x) shape += glyph_covers(static_cast<char>(letter), x, y) ? '#' : '.';
    }
    EXPECT_EQ(shape.find('#') == shape.npos, letter == ' ');
    shapes.insert(shape);
  }
  EXPECT_EQ(shapes.size(), 95u);
  EXPECT_TRUE(glyph_covers('L', 0, 0) && glyph_covers('L', 4, 6) && !glyph_covers('L', 4, 0));
}

}  // namespace
}  // namespace yoke::view

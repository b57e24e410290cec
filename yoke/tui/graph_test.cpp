#include "yoke/tui/graph.h"

#include <gtest/gtest.h>

namespace yoke::tui {
namespace {

std::string bar(std::optional<double> percent, Glyphs glyphs = Glyphs::kUnicode) {
  Canvas canvas({4, 1});
  draw_bar(canvas, {0, 0}, {.width = 4, .percent = percent}, glyphs);
  return canvas.to_text();
}

TEST(Bar, HasHalfSteps) {
  EXPECT_EQ(bar(0), "────\n");
  EXPECT_EQ(bar(std::nullopt), "────\n");
  EXPECT_EQ(bar(50), "━━──\n");
  EXPECT_EQ(bar(62.5), "━━╸─\n");
  EXPECT_EQ(bar(100), "━━━━\n");
}

TEST(Bar, SomethingIsNotNothing) {
  EXPECT_EQ(bar(1), "╸───\n");
  EXPECT_EQ(bar(0.1), "────\n") << "but it is printed as nothing";
}

TEST(Bar, StaysInItsWidthWhateverTheDriverSays) {
  EXPECT_EQ(bar(250), "━━━━\n");
  EXPECT_EQ(bar(-5), "────\n");
}

TEST(Bar, InAscii) { EXPECT_EQ(bar(50, Glyphs::kAscii), "##..\n"); }

struct Picture {
  Size size;
  std::vector<std::optional<double>> values;
  Graph graph = {};
  Glyphs glyphs = Glyphs::kUnicode;
};

std::string draw(const Picture& picture) {
  device::History history;
  for (const auto& value : picture.values) history.push({}, value);
  Canvas canvas(picture.size);
  draw_graph(canvas, {0, 0, picture.size.width, picture.size.height}, history, picture.graph, picture.glyphs);
  return canvas.to_text();
}

TEST(Graph, TheNewestIsAtTheRight) {
  EXPECT_EQ(draw({{3, 1}, {100, 100}}), "  ⣿\n");
  EXPECT_EQ(draw({{3, 1}, {100}}), "  ⢸\n");
  EXPECT_EQ(draw({{1, 1}, {100, 100, 100, 25, 75}}), "⣰\n") << "what is older has left";
}

TEST(Graph, EachCellHasFourLevels) {
  EXPECT_EQ(draw({{5, 1}, {0, 1, 25, 26, 50, 51, 75, 76, 99, 100}}), "⣀⣀⣤⣶⣿\n");
  EXPECT_EQ(draw({{1, 2}, {50, 100}}), "⢸\n⣿\n");
}

TEST(Graph, ZeroIsALineAndUnknownIsAGap) {
  EXPECT_EQ(draw({{3, 1}, {0, 0, std::nullopt, std::nullopt, 0, 0}}), "⣀ ⣀\n");
}

TEST(Graph, ALineJoinsItsSamples) {
  EXPECT_EQ(draw({{2, 1}, {25, 25, 25, 25}, {.is_filled = false}}), "⣀⣀\n");
  EXPECT_EQ(draw({{1, 2}, {1, 100}, {.is_filled = false}}), "⢸\n⡸\n");
  EXPECT_EQ(draw({{1, 1}, {100, 25}, {.is_filled = false}}), "⢱\n") << "down from where it was";
}

TEST(Graph, InAsciiOneSampleIsOneCell) {
  const Graph line{.is_filled = false};
  EXPECT_EQ(draw({{4, 1}, {0, 33, 66, 100}, {}, Glyphs::kAscii}), "..:|\n");
  EXPECT_EQ(draw({{3, 1}, {33, 66, 100}, line, Glyphs::kAscii}), "_-\"\n");
}

TEST(Graph, WithoutRoomNothingIsDrawn) {
  EXPECT_EQ(draw({{0, 0}, {1, 2, 3}}), "");
  Canvas canvas({4, 2});
  device::History history;
  history.push({}, 100);
  draw_graph(canvas, {0, 0, -2, -1}, history, {}, Glyphs::kUnicode);
  EXPECT_EQ(canvas.to_text(), "\n\n");
}

}  // namespace
}  // namespace yoke::tui

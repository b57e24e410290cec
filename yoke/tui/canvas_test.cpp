#include "yoke/tui/canvas.h"

#include <gtest/gtest.h>

namespace yoke::tui {
namespace {

TEST(Canvas, KeepsWhatIsInside) {
  Canvas canvas({5, 2});
  EXPECT_EQ(canvas.put({3, 0}, "abcdef"), 9);
  canvas.put({-2, 1}, "abcdef");
  canvas.put({0, 2}, "below");
  canvas.put({0, -1}, "above");
  EXPECT_EQ(canvas.to_text(), "   ab\ncdef\n");
}

TEST(Canvas, MayBeEmpty) {
  for (const Size size : {Size{0, 0}, Size{-3, 5}, Size{5, -3}}) {
    Canvas canvas(size);
    canvas.put({0, 0}, "x");
    canvas.restyle({0, 0, 10, 10}, Style::kBad);
    canvas.make_ascii();
    EXPECT_EQ(canvas.to_text().find('x'), std::string::npos);
  }
}

TEST(Canvas, DoubleWidthCharactersTakeTwoCells) {
  Canvas canvas({6, 1});
  EXPECT_EQ(canvas.put({0, 0}, "学習a"), 5);
  EXPECT_EQ(canvas.to_text(), "学習a\n");
  EXPECT_EQ(canvas.cell({1, 0}).text, "");
  EXPECT_EQ(canvas.cell({4, 0}).text, "a");
}

TEST(Canvas, HalfOfACharacterIsNeverLeft) {
  Canvas canvas({4, 1});
  canvas.put({0, 0}, "学習");
  canvas.put({1, 0}, "x");  // over the right half of the first character
  EXPECT_EQ(canvas.to_text(), " x習\n");
  canvas.put({2, 0}, "y");  // over the left half of the second character
  EXPECT_EQ(canvas.to_text(), " xy\n");
  canvas.put({3, 0}, "学");  // no room for its right half
  EXPECT_EQ(canvas.to_text(), " xy\n");
  canvas.put({1, 0}, "学");
  canvas.put({2, 0}, "習");
  EXPECT_EQ(canvas.to_text(), "  習\n");
}

TEST(Canvas, MarksJoinTheirLetterUpToALimit) {
  Canvas canvas({3, 1});
  canvas.put({0, 0}, "e\u0301x");
  EXPECT_EQ(canvas.cell({0, 0}).text, "e\u0301");
  EXPECT_EQ(canvas.cell({1, 0}).text, "x");
  std::string many = "a";
  for (int i = 0; i < 1000; ++i) many += "\u0301";
  canvas.put({0, 0}, many);
  EXPECT_LT(canvas.cell({0, 0}).text.size(), 32u);
}

TEST(Canvas, WhatATerminalWouldObeyIsHarmless) {
  Canvas canvas({30, 1});
  canvas.put({0, 0}, "a\x1b[31mb\rc\xff\u202e");
  const auto text = canvas.to_text();
  for (const char c : {'\x1b', '\r', '\xff'}) EXPECT_EQ(text.find(c), std::string::npos) << int{c};
  EXPECT_TRUE(text.starts_with("a?[31mb?c??")) << text;
}

TEST(Canvas, AsciiHasNothingElse) {
  Canvas canvas({10, 1});
  canvas.put({0, 0}, "a学é…·z");
  canvas.make_ascii();
  EXPECT_EQ(canvas.to_text(), "a???~-z\n");
}

TEST(Canvas, RestylingKeepsTheText) {
  Canvas canvas({4, 1});
  canvas.put({0, 0}, "abcd", Style::kGood);
  canvas.restyle({1, 0, 2, 1}, Style::kSelected);
  EXPECT_EQ(canvas.to_text(), "abcd\n");
  EXPECT_EQ(canvas.cell({0, 0}).style, Style::kGood);
  EXPECT_EQ(canvas.cell({2, 0}).style, Style::kSelected);
  EXPECT_EQ(canvas.cell({3, 0}).style, Style::kGood);
}

}  // namespace
}  // namespace yoke::tui

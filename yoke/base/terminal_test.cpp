#include "yoke/base/terminal.h"

#include <gtest/gtest.h>

namespace yoke {
namespace {

TEST(Terminal, ColorModesAreThree) {
  EXPECT_EQ(parse_color_mode("auto"), ColorMode::kAuto);
  EXPECT_EQ(parse_color_mode("always"), ColorMode::kAlways);
  EXPECT_EQ(parse_color_mode("never"), ColorMode::kNever);
  for (const auto* text : {"", "yes", "Always", "auto ", "1"}) EXPECT_EQ(parse_color_mode(text), std::nullopt) << text;
}

TEST(Terminal, ColorsAreForTerminalsThatShowThem) {
  const struct {
    Environment environment;
    bool is_terminal, is_colored;
  } cases[] = {
      {{{"TERM", "xterm"}}, true, true},
      {{{"TERM", "xterm"}}, false, false},
      {{{"TERM", "xterm"}, {"NO_COLOR", ""}}, true, true},  // https://no-color.org: an empty value has no effect
      {{{"TERM", "xterm"}, {"NO_COLOR", "1"}}, true, false},
      {{{"TERM", "xterm"}, {"NO_COLOR", "0"}}, true, false},
      {{{"TERM", "dumb"}}, true, false},
      {{{"TERM", ""}}, true, false},
      {{}, true, false},
  };
  for (const auto& one : cases) {
    const auto text = testing::PrintToString(one.environment.to_strings());
    EXPECT_EQ(wants_color(ColorMode::kAuto, one.environment, one.is_terminal), one.is_colored) << text;
    EXPECT_TRUE(wants_color(ColorMode::kAlways, one.environment, one.is_terminal)) << text;
    EXPECT_FALSE(wants_color(ColorMode::kNever, one.environment, one.is_terminal)) << text;
  }
}

TEST(Terminal, OnlyTheControllingTerminalHasAForeground) { EXPECT_FALSE(is_in_foreground(-1)); }

}  // namespace
}  // namespace yoke

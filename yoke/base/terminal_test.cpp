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

TEST(Terminal, LinesAreNotRedrawnInANotebook) {
  const struct {
    Environment environment;
    bool is_in_notebook, can_redraw;
  } cases[] = {
      {{{"TERM", "xterm"}}, false, true},
      {{{"TERM", "dumb"}}, false, false},
      {{}, false, false},
      {{{"TERM", "xterm-color"}, {"JPY_PARENT_PID", "71"}}, true, false},
      {{{"JPY_PARENT_PID", "71"}}, true, false},
      {{{"TERM", "xterm-color"}, {"JPY_PARENT_PID", ""}}, false, true},
      {{{"TERM", "xterm-color"}, {"PAGER", "cat"}, {"GIT_PAGER", "cat"}},
       true,
       false},  // VS Code starts ipykernel itself
      {{{"TERM", "xterm"}, {"GIT_PAGER", "cat"}}, false, true},
      {{{"TERM", "xterm-color"}}, false, true},
  };
  for (const auto& one : cases) {
    const auto text = testing::PrintToString(one.environment.to_strings());
    EXPECT_EQ(is_in_notebook(one.environment), one.is_in_notebook) << text;
    EXPECT_EQ(can_redraw(one.environment), one.can_redraw) << text;
  }
}

TEST(Terminal, OnlyTheControllingTerminalHasAForeground) { EXPECT_FALSE(is_in_foreground(-1)); }

}  // namespace
}  // namespace yoke

// Tests `yoke top` in a terminal: keys, mouse, sizes, kinds of terminals.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/lines.h"
#include "tests/top/machine.h"
#include "tests/top/tmux.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class TopPage : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_tmux()) GTEST_SKIP() << "tmux is not installed";
  }
};

/// Starts processes with ascending PIDs. If PIDs wrap around in between, it starts all of them again.
std::vector<Sleeper> sleepers(const std::vector<std::string>& names) {
  std::vector<Sleeper> result;
  for (const auto& name : names) result.emplace_back(name);
  const bool ascend =
      std::is_sorted(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.pid() < b.pid(); });
  return ascend ? std::move(result) : sleepers(names);
}

/// Returns the index, from 0, of the screen's line that contains `text`; -1 if there is none.
int line_of(const std::string& screen, const std::string& text) {
  const auto lines = lines_of(screen);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find(text) != std::string::npos) return static_cast<int>(i);
  }
  return -1;
}

bool stands_above(const Tmux& tmux, const std::string& above, const std::string& below) {
  return wait_until([&] {
    const auto screen = tmux.text();
    const auto first = line_of(screen, above), second = line_of(screen, below);
    return first >= 0 && second > first;
  });
}

TEST_F(TopPage, SortsFiltersAndExplains) {
  const auto processes = sleepers({"apple", "berry", "cherry"});
  const Machine machine(2, processes);  // berry is on device 1, the others are on device 0
  const Tmux tmux({.environment = machine.environment(), .command = yoke_top()});
  ASSERT_TRUE(tmux.shows("cherry 1000")) << tmux.text();
  EXPECT_TRUE(tmux.shows("3 processes"));
  EXPECT_TRUE(stands_above(tmux, "apple 1000", "berry 1000")) << "by device";
  tmux.press({"M"});
  EXPECT_TRUE(stands_above(tmux, "berry 1000", "apple 1000")) << "by memory";
  EXPECT_TRUE(stands_above(tmux, "cherry 1000", "berry 1000"));
  tmux.press({"r"});
  EXPECT_TRUE(stands_above(tmux, "apple 1000", "cherry 1000"));

  tmux.press({"/", "e", "r", "r"});
  EXPECT_TRUE(tmux.no_longer_shows("apple 1000"));
  EXPECT_THAT(tmux.text(), AllOf(HasSubstr("find: err"), HasSubstr("berry 1000"), HasSubstr("cherry 1000")));
  tmux.press({"Enter"});
  EXPECT_TRUE(tmux.shows("2 of 3 processes"));
  tmux.press({"Escape"});
  EXPECT_TRUE(tmux.shows("apple 1000"));

  tmux.press({"?"});
  EXPECT_TRUE(tmux.shows("SIGTERM, the second time SIGKILL"));
  tmux.press({"x"});
  EXPECT_TRUE(tmux.shows("apple 1000"));
  tmux.press({"q"});
  EXPECT_TRUE(tmux.shows("left with 0"));
}

TEST_F(TopPage, TheTreeHasParents) {
  const auto processes = sleepers({"apple"});
  const Machine machine(1, processes);
  const Tmux tmux({.width = 120, .environment = machine.environment(), .command = yoke_top()});
  ASSERT_TRUE(tmux.shows("apple 1000"));
  tmux.press({"t"});
  EXPECT_TRUE(tmux.shows("└─ apple 1000")) << tmux.text();
  EXPECT_THAT(tmux.text(), ContainsRegex(fmt::format(" {} .*\n +{} .*└─ apple", getpid(), processes[0].pid())))
      << "under what started it";
  tmux.press({"t"});
  EXPECT_TRUE(tmux.no_longer_shows("└─ apple"));
}

TEST_F(TopPage, FollowsTheSizeOfTheTerminal) {
  const auto processes = sleepers({"apple"});
  const Machine machine(2, processes);
  const Tmux tmux({.environment = machine.environment(), .command = yoke_top()});
  ASSERT_TRUE(tmux.shows("apple 1000"));
  tmux.resize(40, 10);
  ASSERT_TRUE(tmux.shows("MEMORY COMMAND")) << tmux.text();
  EXPECT_EQ(line_of(tmux.text(), "? help"), 9);
  EXPECT_THAT(tmux.text(), AllOf(HasSubstr("   1 "), HasSubstr("apple"), HasSubstr("1 process")));
  tmux.resize(12, 4);
  EXPECT_TRUE(tmux.no_longer_shows("COMMAND"));
  tmux.resize(120, 40);
  EXPECT_TRUE(tmux.shows("ORIGIN"));
  tmux.resize(80, 24);
  EXPECT_TRUE(tmux.no_longer_shows("ORIGIN"));
  EXPECT_EQ(line_of(tmux.text(), "? help"), 23) << tmux.text();
  EXPECT_THAT(tmux.text(), AllOf(HasSubstr("A100-SXM4-80GB"), HasSubstr("apple 1000")));
}

TEST_F(TopPage, EndsAProcessAfterAQuestion) {
  const auto processes = sleepers({"apple"});
  const Machine machine(1, processes);
  const Tmux tmux({.environment = machine.environment(), .command = yoke_top()});
  ASSERT_TRUE(tmux.shows("apple 1000"));
  tmux.press({"Down", "k"});
  ASSERT_TRUE(tmux.shows(fmt::format("send SIGTERM to {} apple (", processes[0].pid()))) << tmux.text();
  tmux.press({"n"});
  ASSERT_TRUE(tmux.shows("nothing was sent"));
  EXPECT_EQ(processes[0].ended_by(), 0);
  tmux.press({"k"});
  ASSERT_TRUE(tmux.shows("send SIGTERM"));
  tmux.press({"y"});
  EXPECT_TRUE(tmux.shows("sent SIGTERM to"));
  EXPECT_TRUE(wait_until([&] { return processes[0].ended_by() == SIGTERM; }));
}

TEST_F(TopPage, TheSecondTimeItIsSigkill) {
  std::vector<Sleeper> processes;
  processes.emplace_back("stubborn", true);
  const Machine machine(1, processes);
  const Tmux tmux({.environment = machine.environment(), .command = yoke_top()});
  ASSERT_TRUE(tmux.shows("stubborn 1000"));
  tmux.press({"Down", "k"});
  ASSERT_TRUE(tmux.shows("send SIGTERM"));
  tmux.press({"y"});
  ASSERT_TRUE(tmux.shows("k again sends SIGKILL"));
  EXPECT_EQ(processes[0].ended_by(), 0);
  tmux.press({"k"});
  ASSERT_TRUE(tmux.shows("send SIGKILL to"));
  tmux.press({"y"});
  EXPECT_TRUE(wait_until([&] { return processes[0].ended_by() == SIGKILL; }));
}

TEST_F(TopPage, ReadonlyEndsNothing) {
  const auto processes = sleepers({"apple"});
  const Machine machine(1, processes);
  const Tmux tmux({.environment = machine.environment(), .command = yoke_top("--readonly")});
  ASSERT_TRUE(tmux.shows("apple 1000"));
  tmux.press({"Down", "k"});
  ASSERT_TRUE(tmux.shows("started with --readonly"));
  tmux.press({"y", "r"});
  ASSERT_TRUE(tmux.no_longer_shows("started with --readonly"));
  EXPECT_EQ(processes[0].ended_by(), 0);
}

TEST_F(TopPage, TheMouseSortsAndSelects) {
  const auto processes = sleepers({"apple", "berry"});
  const Machine machine(1, processes);
  const Tmux tmux({.environment = machine.environment(), .command = yoke_top()});
  ASSERT_TRUE(stands_above(tmux, "berry 1000", "apple 1000")) << "more memory";
  const auto pressed_and_released = [&](int x, int y) {
    const std::string at = {static_cast<char>(x + 33), static_cast<char>(y + 33)};
    return "\x1b[M " + at + "\x1b[M#" + at;
  };
  tmux.type(pressed_and_released(5, line_of(tmux.text(), "PID USER")));
  EXPECT_TRUE(stands_above(tmux, "apple 1000", "berry 1000")) << "by PID\n" << tmux.text();
  tmux.type(pressed_and_released(50, line_of(tmux.text(), "berry 1000")) + "k");  // arrives at once
  EXPECT_TRUE(tmux.shows(fmt::format("send SIGTERM to {}", processes[1].pid()))) << tmux.text();
}

TEST_F(TopPage, NastyNamesAreShownHarmless) {
  const auto processes = sleepers({"\x1b]2;owned\a\x1b[2J\x1b[31mred",
                                   "\xff\xfe\xc3"
                                   "x",
                                   "学習\u202e"});
  const Machine machine(1, processes, R"({"defaults": {"name": "NVIDIA \u001b[2J"}})");
  const Tmux tmux({.environment = machine.environment(), .command = yoke_top()});
  ASSERT_TRUE(tmux.shows("?]2;owned??[2J?[31mred 1000")) << tmux.text();
  EXPECT_THAT(tmux.text(),
              AllOf(HasSubstr("???x 1000"), HasSubstr("学習? 1000"), HasSubstr(" 0 ?[2J"), HasSubstr("? help")));
  EXPECT_THAT(tmux.title(), Not(HasSubstr("owned")));
}

TEST_F(TopPage, SixteenDevicesAndAHundredProcessesIn80Columns) {
  const auto processes = sleepers(std::vector<std::string>(100, "train"));
  const Machine machine(16, processes);
  const Tmux tmux({.environment = machine.environment(), .command = yoke_top()});
  ASSERT_TRUE(tmux.shows("100 processes"));
  const auto lines = lines_of(tmux.text());
  ASSERT_EQ(lines.size(), 24u) << "nothing was wrapped";
  for (int i = 0; i < 16; ++i) {
    EXPECT_THAT(lines[static_cast<size_t>(3 + i)], testing::StartsWith(fmt::format(" {:>3} A100-SXM4-80GB", i)));
    EXPECT_THAT(lines[static_cast<size_t>(3 + i)], HasSubstr("/400W "));  // the users' column follows
  }
  tmux.press({"End"});
  EXPECT_TRUE(tmux.shows(fmt::format("{:>7} ", processes[15].pid()))) << "the last one of device 15\n" << tmux.text();
}

TEST_F(TopPage, AHungDriverDoesNotStopTheKeys) {
  const Machine machine(4, {}, R"({"overrides": {"2": {"hang_s": 1000}}})");
  const Tmux tmux({.environment = machine.environment(), .command = yoke_top("--deadline 15")});
  ASSERT_TRUE(tmux.shows("reading the devices"));
  tmux.press({"?"});
  // Before the deadline, which is more than ten times what a key needs on a busy machine.
  EXPECT_TRUE(wait_until([&] { return tmux.text().find("quit") != std::string::npos; }, milliseconds(12'000)));
  tmux.press({"?"});
  EXPECT_TRUE(tmux.shows("no answer: the driver has not answered")) << tmux.text();
  EXPECT_THAT(tmux.text(), AllOf(HasSubstr("   1 A100"), HasSubstr("   3 A100")));
  tmux.press({"q"});
  EXPECT_TRUE(tmux.shows("left with 0"));
}

TEST_F(TopPage, HiddenProcessesComeBackAtOnce) {
  const auto processes = sleepers({"apple"});
  const Machine machine(1, processes);
  const Tmux tmux({.environment = machine.environment(), .command = yoke_top("--interval 60")});
  ASSERT_TRUE(tmux.shows("apple 1000"));
  tmux.press({"p"});
  EXPECT_TRUE(tmux.no_longer_shows("apple 1000"));
  tmux.press({"p"});
  EXPECT_TRUE(tmux.shows("apple 1000"));
}

TEST_F(TopPage, ColoursAreForTerminalsThatHaveThem) {
  const Machine machine(2);
  auto environment = machine.environment();
  const auto page = [&](const std::string& term, const std::string& options = "") {
    const Tmux tmux({.term = term, .environment = environment, .command = yoke_top(options)});
    EXPECT_TRUE(tmux.shows("A100-SXM4-80GB")) << term << "\n" << tmux.text();
    tmux.press({"M"});
    EXPECT_TRUE(tmux.shows("no process uses a device")) << term << "\n" << tmux.text();
    const auto styled = tmux.styled_text();
    tmux.press({"q"});
    EXPECT_TRUE(tmux.shows("left with 0")) << term;
    return styled;
  };
  EXPECT_THAT(page("screen-256color"), HasSubstr("\x1b[38;5;244m"));
  EXPECT_THAT(page("screen"), AllOf(HasSubstr("\x1b[32m"), Not(HasSubstr("38;5"))));
  EXPECT_THAT(page("vt100"), Not(testing::ContainsRegex("\x1b\\[[0-9;]*3[0-7]m")));
  environment.back() = {"NO_COLOR", "1"};
  EXPECT_THAT(page("screen-256color"), Not(testing::ContainsRegex("\x1b\\[[0-9;]*3[0-8][;m]")));
  EXPECT_THAT(page("screen-256color", "--color always"), HasSubstr("\x1b[38;5;244m"));
  environment.back() = {"NO_COLOR", ""};
  EXPECT_THAT(page("screen-256color", "--color never"), Not(testing::ContainsRegex("\x1b\\[[0-9;]*3[0-8][;m]")));
}

TEST_F(TopPage, LocalesWithoutUnicodeGetAscii) {
  const auto processes = sleepers({"学習"});
  const Machine machine(2, processes);
  auto environment = machine.environment();
  environment.emplace_back("LC_ALL", "C");
  const Tmux tmux({.environment = environment, .command = yoke_top()});
  ASSERT_TRUE(tmux.shows("1 process"));
  EXPECT_TRUE(tmux.shows("???? 1000"));
  for (const char c : tmux.text()) EXPECT_LT(static_cast<unsigned char>(c), 0x80);
}

TEST_F(TopPage, ALocaleThatIsNotInstalledIsUnicodeAllTheSame) {
  const Machine machine(2);
  auto environment = machine.environment();
  environment.emplace_back("LC_ALL", "xx_XX.UTF-8");
  const Tmux tmux({.environment = environment, .command = yoke_top()});
  EXPECT_TRUE(tmux.shows("────")) << tmux.text();
}

TEST_F(TopPage, ATerminalThatCannotPlaceItsCursorGetsThePageOnce) {
  const Machine machine(2);
  for (const std::string term : {"dumb", "nonsense"}) {
    const Tmux tmux({.width = 120, .term = term, .environment = machine.environment(), .command = yoke_top()});
    ASSERT_TRUE(tmux.shows("left with 0")) << tmux.text();
    EXPECT_THAT(tmux.text(), AllOf(HasSubstr(fmt::format("this terminal (TERM={})", term)), HasSubstr("   1 A100")));
  }
}

}  // namespace
}  // namespace yoke::test

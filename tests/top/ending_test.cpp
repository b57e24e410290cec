// Tests that the terminal's modes are restored, however `yoke top` ends or stops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/top/machine.h"
#include "tests/top/tmux.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class TopEnding : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_tmux()) GTEST_SKIP() << "tmux is not installed";
  }

  const Machine machine_{1};
};

/// The command that the shell waits for, and the command's child, which draws the page.
struct Processes {
  pid_t command = -1, page = -1;
};

Processes processes_of(const Tmux& tmux) {
  Processes result;
  wait_until([&] {
    const auto children = children_of(tmux.shell());
    if (children.empty()) return false;
    result.command = children[0];
    const auto below = children_of(result.command);
    result.page = below.empty() ? result.command : below[0];
    return true;
  });
  return result;
}

void expect_a_terminal_as_before(const Tmux& tmux) {
  EXPECT_TRUE(tmux.shows("typing shows")) << "\n" << tmux.text();
  EXPECT_THAT(tmux.text(), Not(HasSubstr("? help"))) << "the page has gone";
  tmux.type("echo a''live\r");
  EXPECT_TRUE(tmux.shows("alive"));
}

TEST_F(TopEnding, BySignals) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    for (const bool is_to_command : {true, false}) {
      const Tmux tmux({.environment = machine_.environment(), .command = yoke_top()});
      ASSERT_TRUE(tmux.shows("A100-SXM4-80GB"));
      const auto processes = processes_of(tmux);
      kill(is_to_command ? processes.command : processes.page, signal);
      EXPECT_TRUE(tmux.shows(fmt::format("left with {}", 128 + signal))) << signal << "\n" << tmux.text();
      expect_a_terminal_as_before(tmux);
    }
  }
}

TEST_F(TopEnding, ByCtrlC) {
  const Tmux tmux({.environment = machine_.environment(), .command = yoke_top()});
  ASSERT_TRUE(tmux.shows("A100-SXM4-80GB"));
  tmux.press({"C-c"});
  EXPECT_TRUE(tmux.no_longer_shows("? help"));
  tmux.type("echo a''live; stty -a | grep -q ' echo ' && echo ty''ping shows\r");  // after Ctrl-C, bash skips the rest
                                                                                   // of the line
  EXPECT_TRUE(tmux.shows("alive"));
  EXPECT_TRUE(tmux.shows("typing shows"));
}

TEST_F(TopEnding, ByACrash) {
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS}) {
    const Tmux tmux({.environment = machine_.environment(), .command = "ulimit -c 0; " + yoke_top()});
    ASSERT_TRUE(tmux.shows("A100-SXM4-80GB"));
    kill(processes_of(tmux).page, signal);
    EXPECT_TRUE(tmux.shows("left with")) << signal << "\n" << tmux.text();
    expect_a_terminal_as_before(tmux);
  }
}

TEST_F(TopEnding, WhenWhatStartedItIsKilled) {
  const Tmux tmux({.environment = machine_.environment(), .command = yoke_top()});
  ASSERT_TRUE(tmux.shows("A100-SXM4-80GB"));
  const auto processes = processes_of(tmux);
  if (processes.command == processes.page) return;  // the shell started the page's process directly
  kill(processes.command, SIGKILL);
  EXPECT_TRUE(wait_until([&] { return kill(processes.page, 0) != 0; })) << "nobody would end it";
  EXPECT_TRUE(tmux.no_longer_shows("A100-SXM4-80GB"));
  tmux.type("echo a''live\r");
  EXPECT_TRUE(tmux.shows("alive"));
}

TEST_F(TopEnding, WhenTheTerminalCloses) {
  Processes processes;
  {
    const Tmux tmux({.environment = machine_.environment(), .command = yoke_top()});
    ASSERT_TRUE(tmux.shows("A100-SXM4-80GB"));
    processes = processes_of(tmux);
  }
  EXPECT_TRUE(wait_until([&] { return kill(processes.page, 0) != 0 && kill(processes.command, 0) != 0; }));
}

TEST_F(TopEnding, CtrlZStopsAndFgContinues) {
  const Tmux tmux({.environment = machine_.environment(), .command = yoke_top()});
  ASSERT_TRUE(tmux.shows("A100-SXM4-80GB"));
  for (int round = 0; round < 2; ++round) {
    tmux.press({"C-z"});
    ASSERT_TRUE(tmux.shows("Stopped")) << tmux.text();
    EXPECT_THAT(tmux.text(), Not(HasSubstr("A100-SXM4-80GB")));
    tmux.type("stty -a | grep -q ' echo ' && echo ty''ping shows; echo a''live\r");
    EXPECT_TRUE(tmux.shows("alive"));
    EXPECT_THAT(tmux.text(), HasSubstr("typing shows"));
    tmux.type("fg\r");
    ASSERT_TRUE(tmux.shows("A100-SXM4-80GB")) << tmux.text();
    EXPECT_THAT(tmux.text(), AllOf(HasSubstr("? help"), Not(HasSubstr("Stopped"))));
    tmux.press({"?"});
    EXPECT_TRUE(tmux.shows("Keys")) << "keys work";
    tmux.press({"?"});
    tmux.type("\x0c");  // Ctrl-L
    ASSERT_TRUE(tmux.shows("A100-SXM4-80GB"));
  }
  tmux.press({"q"});
  EXPECT_TRUE(tmux.no_longer_shows("A100-SXM4-80GB"));
}

TEST_F(TopEnding, StoppedByForceItContinuesToo) {
  const Tmux tmux({.environment = machine_.environment(), .command = yoke_top()});
  ASSERT_TRUE(tmux.shows("A100-SXM4-80GB"));
  const auto processes = processes_of(tmux);
  kill(processes.page, SIGSTOP);
  kill(processes.command, SIGSTOP);
  tmux.type("stty sane; clear; echo a''live\r");
  ASSERT_TRUE(tmux.shows("alive"));
  tmux.type("fg\r");
  ASSERT_TRUE(tmux.shows("A100-SXM4-80GB")) << tmux.text();
  tmux.press({"?"});
  EXPECT_TRUE(tmux.shows("Keys")) << "without Enter";
}

}  // namespace
}  // namespace yoke::test

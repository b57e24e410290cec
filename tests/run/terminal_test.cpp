// Tests `yoke run` in a shell with job control, on a real terminal.
#include "tests/support/terminal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/run/launch.h"

namespace yoke::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kStatus = "ranks up";
constexpr std::string_view kClearLine = "\r\x1b[K";

class Terminal : public testing::Test {
 protected:
  /// Writes a script for `sh` into a file, so that the terminal does not echo its text. `$F` is the test's folder.
  std::string script(const std::string& text) {
    const auto name = "script" + std::to_string(++num_scripts_);
    folder_.write(name, "export F=" + folder_.path() + "\n" + text + "\n");
    return "sh " + folder_.path(name);
  }

  /// Returns the command line `yoke run OPTIONS -- sh SCRIPT`.
  std::string yoke_run(const std::string& options, const std::string& text) {
    return std::string(kYoke) + " run " + options + " -- " + script(text);
  }

  pid_t pid_in(const std::string& file) { return std::atoi(shell_.line_of(folder_.path(file)).c_str()); }

  std::string text_of(const std::string& file) const { return slurp(folder_.path(file)); }

  void go_on() const { folder_.write("go", ""); }

  bool are_stopped(const std::vector<pid_t>& pids, bool stopped) {
    return shell_.wait_until([&] {
      return std::all_of(pids.begin(), pids.end(), [&](pid_t pid) { return (state_of(pid) == 'T') == stopped; });
    });
  }

  /// Waits until the only rank runs and the launcher knows that. Before that, Ctrl-C would end the job.
  bool launcher_has_its_rank() {
    if (pid_in("pid-0") <= 0) return false;
    return shell_.wait_until([&] {
      const auto launchers = children_of(shell_.shell());
      const auto jobs = test::run({.argv = {kYoke, "jobs"}}).out;
      const auto line = launchers.empty() ? jobs.npos : jobs.find(std::to_string(launchers[0]) + " ");
      return line != jobs.npos && jobs.substr(line, jobs.find('\n', line) - line).find(" 1/1 ") != jobs.npos;
    });
  }

  bool nothing_is_left() {
    return shell_.wait_until([&] { return processes_with_tag(shell_.tag()) == std::vector<pid_t>{shell_.shell()}; });
  }

  TemporaryFolder folder_;
  ShellOnTerminal shell_;
  int num_scripts_ = 0;
};

/// This script counts SIGINT in a file for each rank, and runs until a file tells it to end.
constexpr const char* kCountInterrupts =
    "trap 'echo caught >> $F/caught-$RANK' INT\n"
    "echo $$ > $F/pid-$RANK\n"
    "until [ -e $F/go ]; do sleep 0.05; done";

/// The ranks only wait and start no programs. A shell that starts a program could be stopped during vfork, in state D
/// instead of T.
constexpr const char* kWait = "echo $$ > $F/pid-$RANK; exec sleep 1000";

// ---- job control ----------------------------------------------------------------------------------------------------

TEST_F(Terminal, CtrlCReachesEachRankOnce) {
  shell_.run(yoke_run("-n 2", kCountInterrupts));
  ASSERT_GT(pid_in("pid-0"), 0);
  ASSERT_GT(pid_in("pid-1"), 0);
  shell_.type(kCtrlC);
  for (const char* file : {"caught-0", "caught-1"}) EXPECT_EQ(shell_.line_of(folder_.path(file)), "caught");
  go_on();
  ASSERT_TRUE(shell_.shows("yoke run: SIGINT; stopped 2 ranks")) << shell_.out();
  EXPECT_EQ(text_of("caught-0"), "caught\n") << "from the terminal, and not from `yoke run` too";
  EXPECT_EQ(text_of("caught-1"), "caught\n");
  EXPECT_TRUE(nothing_is_left());
}

// When a terminal hangs up, the kernel signals only the session's leader, as in `tmux new "exec yoke run ..."`. The
// launcher must pass the signal on to rank 0.
TEST_F(Terminal, WhenItHangsUpEachRankIsTold) {
  for (const std::string leader : {"exec ", ""}) {
    ShellOnTerminal shell;
    const TemporaryFolder folder;
    shell.run("export F=" + folder.path());
    shell.run(leader + std::string(YOKE_COMMAND) +
              " run -n 2 -- sh -c 'trap \"echo told >> $F/told-$RANK; exit\" HUP; echo $$ > $F/pid-$RANK; "
              "while :; do sleep 0.05; done'");
    ASSERT_NE(shell.line_of(folder.path("pid-0")), "");
    ASSERT_NE(shell.line_of(folder.path("pid-1")), "");
    shell.hang_up();
    for (const char* file : {"told-0", "told-1"}) EXPECT_EQ(shell.line_of(folder.path(file)), "told") << leader << file;
    EXPECT_TRUE(shell.wait_until([&] {
      const auto left = processes_with_tag(shell.tag());
      return left.empty() || left == std::vector<pid_t>{shell.shell()};
    }));
  }
}

TEST_F(Terminal, CtrlZStopsAllRanksAndTheShellContinuesThem) {
  shell_.run(yoke_run("-n 3", kWait));
  std::vector<pid_t> ranks;
  for (const char* file : {"pid-0", "pid-1", "pid-2"}) ranks.push_back(pid_in(file));
  for (const auto& continue_it : {"fg\n", "bg\n"}) {
    shell_.type(kCtrlZ);
    ASSERT_TRUE(shell_.shows("Stopped")) << shell_.out();
    EXPECT_TRUE(are_stopped(ranks, true));
    shell_.forget();
    shell_.type(continue_it);
    EXPECT_TRUE(are_stopped(ranks, false));
  }
  shell_.run("kill %1");
  EXPECT_TRUE(shell_.shows("yoke run: SIGTERM; stopped 3 ranks")) << shell_.out();
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(Terminal, AStoppedJobCanBeKilledByTheShell) {
  shell_.run(yoke_run("-n 2", kWait));
  const std::vector<pid_t> ranks = {pid_in("pid-0"), pid_in("pid-1")};
  shell_.type(kCtrlZ);
  ASSERT_TRUE(are_stopped(ranks, true));
  shell_.run("kill -9 %1");
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(Terminal, AJobInTheBackgroundDoesNotReadTheKeyboard) {
  shell_.run(yoke_run("-n 2",
                      "echo $$ > $F/pid-$RANK; [ $RANK = 1 ] && exec sleep 1000\n"
                      "until [ -s $F/pid-1 ]; do sleep 0.05; done; exec cat > $F/typed") +
             " &");
  const std::vector<pid_t> ranks = {pid_in("pid-0"), pid_in("pid-1")};
  EXPECT_TRUE(are_stopped(ranks, true)) << "as any job that wants input";
  for (int i = 0; i < 5; ++i) shell_.run("echo the-shell-has-it-$((6 * 7))");
  EXPECT_TRUE(shell_.shows("the-shell-has-it-42")) << shell_.out();
  EXPECT_EQ(text_of("typed"), "");
  shell_.run("fg");
  EXPECT_TRUE(are_stopped(ranks, false));
  shell_.run("for-rank-0");
  EXPECT_EQ(shell_.line_of(folder_.path("typed")), "for-rank-0");
  shell_.type(kCtrlC);
  EXPECT_TRUE(shell_.shows("stopped 2 ranks")) << shell_.out();
}

TEST_F(Terminal, ABackgroundJobIsNotStoppedForWhatItPrints) {
  shell_.run("stty tostop");
  shell_.run(yoke_run("-n 2", "echo $$ > $F/pid-$RANK; echo out-$RANK; until [ -e $F/go ]; do sleep 0.05; done") +
             " &");
  const std::vector<pid_t> ranks = {pid_in("pid-0"), pid_in("pid-1")};
  EXPECT_TRUE(shell_.shows("[0] out-0")) << shell_.out();
  EXPECT_TRUE(shell_.shows("[1] out-1")) << shell_.out();
  go_on();
  shell_.run("wait; echo status-$?-$((6 * 7))");
  EXPECT_TRUE(shell_.shows("status-0-42")) << shell_.out();
}

TEST_F(Terminal, RankZeroOpensTheTerminal) {
  shell_.run(yoke_run("-n 2", "echo has-it-$RANK > /dev/tty; true"));
  EXPECT_TRUE(shell_.shows("has-it-0")) << shell_.out();
  EXPECT_TRUE(shell_.shows("/dev/tty")) << "of rank 1, in an error: " << shell_.out();
  EXPECT_THAT(shell_.out(), Not(HasSubstr("has-it-1\r")));
}

TEST_F(Terminal, RankZeroHasTheTerminalAfterARestart) {
  shell_.run(yoke_run("-n 2 --max-restarts 1",
                      "[ $RANK = 1 ] && exit; echo start-$RANK-$TORCHELASTIC_RESTART_COUNT > /dev/tty; "
                      "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3"));
  EXPECT_TRUE(shell_.shows("start-0-0")) << shell_.out();
  EXPECT_TRUE(shell_.shows("start-0-1")) << shell_.out();
}

// The job has no shell that could continue it, so the kernel ignores Ctrl-Z.
TEST_F(Terminal, CtrlZIsIgnoredWhereNobodyCouldContinueTheJob) {
  shell_.run("exec " +
             yoke_run("-n 2", "echo $$ > $F/pid-$RANK; [ $RANK = 1 ] && exec sleep 1000; read a; echo heard-$a"));
  const std::vector<pid_t> ranks = {pid_in("pid-0"), pid_in("pid-1")};
  shell_.type(kCtrlZ);
  shell_.type("it\n");
  EXPECT_TRUE(shell_.shows("[0] heard-it")) << shell_.out();
  EXPECT_TRUE(are_stopped({ranks[1]}, false));
}

// ---- which processes get a signal -----------------------------------------------------------------------------------

TEST_F(Terminal, ASignalReachesWhatRankZeroStartedAndNobodyBeside) {
  const auto neighbour = script("trap 'echo hit > $F/hit' TERM; cat");
  shell_.run(yoke_run("-n 2",
                      "echo $PPID > $F/guardian\n"
                      "[ $RANK = 0 ] && sh -c 'trap \"echo child >> $F/child; exit\" TERM; echo $$ > $F/pid-0; "
                      "while :; do sleep 0.05; done' &\n"
                      "echo $$ > $F/shell-$RANK; exec sleep 1000") +
             " | " + neighbour);
  ASSERT_GT(pid_in("pid-0"), 0);
  ASSERT_GT(pid_in("shell-1"), 0);
  std::ifstream stat("/proc/" + std::to_string(pid_in("guardian")) + "/stat");
  std::string word;
  for (int i = 0; i < 4; ++i) stat >> word;
  kill(std::stoi(word), SIGTERM);
  EXPECT_TRUE(shell_.shows("yoke run: SIGTERM; stopped 2 ranks")) << shell_.out();
  EXPECT_EQ(text_of("child"), "child\n") << "once";
  EXPECT_EQ(text_of("hit"), "");
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(Terminal, NothingIsLeftAfterSigkillOfTheWholeJob) {
  for (const std::string target : {"%1", "$!"}) {  // signals to the process group, and to the launcher
    shell_.run(std::string(kYoke) + " run -n 2 -- " + kRank + " tree stubborn < /dev/tty &");
    ASSERT_TRUE(shell_.shows("[0] ready")) << shell_.out();
    ASSERT_TRUE(shell_.shows("[1] ready")) << shell_.out();
    shell_.forget();
    shell_.run("kill -9 " + target + "; wait");
    EXPECT_TRUE(nothing_is_left()) << target;
  }
}

// ---- a single rank --------------------------------------------------------------------------------------------------

TEST_F(Terminal, CtrlCIsTheBusinessOfARankThatIsAlone) {
  shell_.run(yoke_run("-n 1 --grace 0.1",
                      "trap 'echo caught >> $F/caught-0' INT; echo $$ > $F/pid-0\n"
                      "until [ -s $F/caught-0 ]; do sleep 0.05; done; sleep 1; read a; echo heard-$a; exit 5"));
  ASSERT_TRUE(launcher_has_its_rank());
  shell_.type(kCtrlC);
  EXPECT_EQ(shell_.line_of(folder_.path("caught-0")), "caught");
  shell_.type("it\n");
  EXPECT_TRUE(shell_.shows("heard-it")) << "after the grace: " << shell_.out();
  EXPECT_TRUE(shell_.shows("yoke run: rank 0")) << shell_.out();
  EXPECT_TRUE(shell_.shows("exited with code 5")) << shell_.out();
  EXPECT_EQ(text_of("caught-0"), "caught\n");
}

TEST_F(Terminal, ARankThatDiesOfCtrlCIsNotStartedAgain) {
  shell_.run(yoke_run("-n 1 --max-restarts 3", kWait));
  ASSERT_TRUE(launcher_has_its_rank());
  shell_.type(kCtrlC);
  EXPECT_TRUE(shell_.shows("was killed by SIGINT")) << shell_.out();
  shell_.run("echo status-$?-$((6 * 7))");
  EXPECT_TRUE(shell_.shows("status-130-42")) << shell_.out();
}

TEST_F(Terminal, ARankThatIsAloneAndDoesNotEndCanBeEnded) {
  shell_.run(yoke_run("-n 1 --grace 0.1", "trap '' INT QUIT; echo $$ > $F/pid-0; while :; do sleep 0.05; done"));
  ASSERT_TRUE(launcher_has_its_rank());
  // Presses Ctrl-C until the launcher has read three signals, because two that arrive at once count as one. Ctrl-C also
  // makes the terminal drop unread input.
  const auto is_told = [&] { return shell_.out().find("Ctrl-\\ ends the job") != std::string::npos; };
  for (int i = 0; i < 100 && !is_told(); ++i) {
    shell_.type(kCtrlC);
    shell_.wait_until(is_told, milliseconds(200));
  }
  EXPECT_TRUE(is_told()) << shell_.out();
  shell_.type(kCtrlBackslash);
  EXPECT_TRUE(shell_.shows("yoke run: SIGQUIT; stopped 1 rank, by SIGKILL")) << shell_.out();
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(Terminal, SigintToTheLauncherEndsARankThatIsAlone) {
  shell_.run(yoke_run("-n 1",
                      "trap 'echo caught >> $F/caught-0; exit 0' INT; echo $$ > $F/pid-0\n"
                      "while :; do sleep 0.05; done") +
             " < /dev/tty &");
  ASSERT_GT(pid_in("pid-0"), 0);
  shell_.run("kill -INT $!");
  EXPECT_TRUE(shell_.shows("yoke run: SIGINT; stopped 1 rank")) << shell_.out();
}

// ---- the status line, and progress bars -----------------------------------------------------------------------------

/// This script prints a line from time to time, until a file tells it to end.
constexpr const char* kTick =
    "echo $$ > $F/pid-$RANK; n=0\n"
    "until [ -e $F/go ]; do sleep 0.1; n=$((n+1)); [ $RANK = 0 ] && echo tick-$n; done";

TEST_F(Terminal, TheStatusLineIsForTheForeground) {
  const auto show_ticks = [&](int count) {
    return shell_.wait_until([&] {
      int seen = 0;
      for (size_t at = 0; (at = shell_.out().find("tick-", at)) != std::string::npos; ++at) ++seen;
      return seen >= count;
    });
  };
  shell_.run(yoke_run("-n 2", kTick));
  ASSERT_TRUE(shell_.shows(kStatus)) << shell_.out();
  shell_.type(kCtrlZ);
  ASSERT_TRUE(shell_.shows("Stopped")) << shell_.out();
  const auto last = shell_.out().rfind(kStatus);
  EXPECT_THAT(shell_.out().substr(last), HasSubstr(kClearLine)) << "before the shell has its prompt";

  shell_.forget();
  shell_.run("bg");
  ASSERT_TRUE(show_ticks(25)) << shell_.out();  // over two seconds; the status line is normally drawn every second
  EXPECT_THAT(shell_.out(), Not(HasSubstr(kStatus)));
  EXPECT_THAT(shell_.out(), Not(HasSubstr(kClearLine)));

  shell_.forget();
  shell_.run("fg");
  EXPECT_TRUE(shell_.shows(kStatus)) << shell_.out();
  go_on();
  shell_.run("echo over-$((6 * 7))");
  ASSERT_TRUE(shell_.shows("over-42"));
  EXPECT_THAT(shell_.out().substr(shell_.out().rfind(kStatus)), HasSubstr(kClearLine));
}

TEST_F(Terminal, NothingIsPaintedBesideTheReaderOfAPipe) {
  const auto bar_and_time = "printf '\\r 10%%' >&2; sleep 1.5; printf '\\r100%%\\n' >&2; echo end-$RANK";
  shell_.run(yoke_run("-n 2", bar_and_time) + " | cat; echo over-$((6 * 7))");
  ASSERT_TRUE(shell_.shows("over-42")) << shell_.out();
  EXPECT_THAT(shell_.out(), HasSubstr("[1] end-1"));
  EXPECT_THAT(shell_.out(), HasSubstr("[0] 100%"));
  EXPECT_THAT(shell_.out(), Not(HasSubstr(kStatus)));
  EXPECT_THAT(shell_.out(), Not(HasSubstr(kClearLine)));

  // The output goes to a file, so no other program writes to the terminal, and the launcher may show the bar.
  shell_.forget();
  const auto bar_until_go =
      "printf '\\r 10%%' >&2; until [ -e $F/go ]; do sleep 0.05; done; printf '\\r100%%\\n' >&2; echo end-$RANK";
  shell_.run(yoke_run("-n 2", bar_until_go) + " > " + folder_.path("log") + "; echo over-$((6 * 7))");
  EXPECT_TRUE(shell_.shows("[0]  10%")) << shell_.out();
  go_on();
  ASSERT_TRUE(shell_.shows("over-42")) << shell_.out();
  EXPECT_THAT(text_of("log"), HasSubstr("[0] end-0\n"));
}

TEST_F(Terminal, NothingIsPaintedOnATerminalThatCannot) {
  for (const std::string term : {"export TERM=dumb", "unset TERM"}) {
    shell_.forget();
    shell_.run(term + "; unset NO_COLOR; " + yoke_run("-n 2", "printf '\\r 10%%'; sleep 1.5; echo; echo end-$RANK") +
               "; echo over-$((6 * 7))");
    ASSERT_TRUE(shell_.shows("over-42")) << shell_.out();
    EXPECT_THAT(shell_.out(), HasSubstr("[1] end-1"));
    EXPECT_THAT(shell_.out(), Not(HasSubstr("\x1b[K"))) << term;
    EXPECT_THAT(shell_.out(), Not(HasSubstr("\x1b[3"))) << term;
    EXPECT_THAT(shell_.out(), Not(HasSubstr(kStatus))) << term;
  }
}

// ---- prompts of the rank that reads the keyboard --------------------------------------------------------------------

TEST_F(Terminal, AQuestionIsSeenBeforeItIsAnswered) {
  shell_.run(yoke_run("-n 2",
                      "[ $RANK = 1 ] && { until [ -e $F/go ]; do sleep 0.05; done; echo other; exit; }\n"
                      "printf 'name? '; read a; echo hello-$a; printf 'age? ' >&2; read b; echo old-$b"));
  ASSERT_TRUE(shell_.shows("[0] name? ")) << shell_.out();
  shell_.forget();
  go_on();
  EXPECT_TRUE(shell_.shows("\r\x1b[K[1] other\r\n[0] name? "))
      << "a line of another rank leaves it last: " << shell_.out();
  shell_.type("ada\n");
  ASSERT_TRUE(shell_.shows("[0] age? ")) << shell_.out();
  EXPECT_THAT(shell_.out(), HasSubstr("[0] name? ada\r\nhello-ada\r\n")) << "the question is not repeated";
  EXPECT_THAT(shell_.out(), Not(HasSubstr("name? hello")));
  shell_.type("36\n");
  EXPECT_TRUE(shell_.shows("[0] old-36")) << "on another stream: " << shell_.out();
}

TEST_F(Terminal, WhatIsNoQuestionIsContinuedInItsLine) {
  shell_.run(yoke_run("-n 2",
                      "[ $RANK = 1 ] && exit; printf 'loading... '; until [ -e $F/go ]; do sleep 0.05; done\n"
                      "echo done; printf x > $F/end") +
             "; echo over-$((6 * 7))");
  ASSERT_TRUE(shell_.shows("[0] loading... ")) << shell_.out();
  go_on();
  ASSERT_TRUE(shell_.shows("over-42")) << shell_.out();
  EXPECT_THAT(shell_.out(), HasSubstr("[0] loading... done\r\n"));
}

}  // namespace
}  // namespace yoke::test

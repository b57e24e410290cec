// Tests how a job ends: exit codes, reported reasons, signals, and the grace period.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "tests/run/launch.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;

TEST(Ending, SuccessIsSilent) {
  const auto result = run(yoke_run({"-n", "3", "--", "true"}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, IsEmpty());
}

TEST(Ending, TheFirstFailureGivesItsCode) {
  const auto result = run(yoke_run_shell(3, "[ $RANK = 1 ] && exit 7; exec sleep 60"));
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(result.err,
              MatchesRegex("yoke run: rank 1 \\(pid [0-9]+\\) exited with code 7; stopped the 2 other ranks\n"));
}

// A signal that reaches a rank between its fork and its exec must not be lost.
TEST(Ending, AFailureBeforeTheOthersAreUpStopsThemToo) {
  for (int round = 0; round < 20; ++round) {
    const auto result = run(yoke_run_shell(8, "[ $RANK = 0 ] && exit 5; exec sleep 60"));
    EXPECT_EQ(result.exit_code, 5);
    ASSERT_THAT(result.err, Not(HasSubstr("SIGKILL")));
  }
}

TEST(Ending, SignalsAre128AndTheirNumber) {
  for (const auto& [signal, name] : {std::pair{SIGKILL, "SIGKILL"}, {SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"}}) {
    const auto result =
        run(yoke_run_shell(2, "ulimit -c 0; [ $RANK = 1 ] && kill -" + std::to_string(signal) + " $$; exec sleep 60"));
    EXPECT_EQ(result.exit_code, 128 + signal);
    EXPECT_THAT(result.err, HasSubstr(std::string("was killed by ") + name + "; stopped the other rank\n"));
  }
}

// A rank can stop its guardian by SIGSTOP. The ranks must end even then.
TEST(Ending, AStoppedGuardianEndsTheRanksToo) {
  const TemporaryFolder folder;  // its files tell rank 0 that all ranks have started
  const auto script = fmt::format(
      "echo guardian $PPID; touch {0}/$RANK; until [ -e {0}/$((WORLD_SIZE - 1)) ]; do sleep 0.05; done; "
      "[ $RANK = 0 ] && kill -STOP $PPID; echo ready; exec sleep 60",
      folder.path());
  Command job(yoke_run_shell(2, script));
  const auto is_ready = [&] {
    return job.out().find("[1] ready") != std::string::npos && job.out().find("[0] ready") != std::string::npos;
  };
  ASSERT_TRUE(job.wait_until(is_ready));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().exit_code, 128 + SIGTERM);

  Command killed(yoke_run_shell(1, script));
  ASSERT_TRUE(killed.wait_until([&] { return killed.out().find("ready") != std::string::npos; }));
  const auto guardian = static_cast<pid_t>(std::stoi(killed.out().substr(killed.out().find("guardian ") + 9)));
  killed.signal(SIGKILL);
  killed.wait();
  EXPECT_TRUE(wait_until([&] { return kill(guardian, 0) != 0 && errno == ESRCH; })) << guardian;
}

TEST(Ending, ARanksTerminalModesGoWithAJobThatFails) {
  const TemporaryFolder folder;
  const std::string ranks =
      "if [ $RANK = 0 ]; then stty -echo; touch $F; exec sleep 60; fi; until [ -e $F ]; do sleep 0.05; done; exit 3";
  const auto script = fmt::format(
      "before=$(stty -g); {} run -n 2 --grace 1 sh -c '{}'; [ \"$(stty -g)\" = \"$before\" ] && echo as it was", kYoke,
      ranks);
  Command job({.argv = {"sh", "-c", script}, .environment = {{"F", folder.path("changed")}}, .on_terminal = true});
  EXPECT_THAT(job.wait().out, HasSubstr("as it was"));
}

TEST(Ending, AMissingProgram) {
  for (const char* num_ranks : {"1", "2"}) {
    const auto missing = run(yoke_run({"-n", num_ranks, "--", "./absent-program"}));
    EXPECT_EQ(missing.exit_code, 127);
    EXPECT_EQ(missing.err, "yoke run: cannot run './absent-program': No such file or directory\n");
  }
  TemporaryFolder folder;
  folder.write("data", "not a program\n");
  const auto refused = run(yoke_run({"-n", "2", "--", folder.path("data")}));
  EXPECT_EQ(refused.exit_code, 126);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("Permission denied"), HasSubstr("chmod +x ")));
  for (const auto& options : {std::vector<std::string>{"-n", "1"}, {"-n", "2", "--preload"}}) {
    auto words = options;
    words.insert(words.end(), {"--", folder.path()});
    const auto of_folder = run(yoke_run(words));
    EXPECT_EQ(of_folder.exit_code, 126);
    EXPECT_THAT(of_folder.err, HasSubstr("yoke run: cannot run '" + folder.path() + "': Is a directory\n"));
  }
  const auto nothing = run(yoke_run({"-n", "2"}));
  EXPECT_EQ(nothing.exit_code, 64);
  EXPECT_THAT(nothing.err, HasSubstr("no program"));
}

TEST(Ending, ARankThatIgnoresTheSignalIsKilledAfterTheGrace) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string script =
      "if [ $RANK = 1 ]; then read x < ready; exit 3; fi; trap '' TERM; echo > ready; "
      "while :; do sleep 60; done";
  auto words = yoke_run({"-n", "2", "--grace", "0.3", "--", "sh", "-c", script});
  TemporaryFolder folder;
  words.argv = {"sh",
                "-c",
                "mkfifo ready; exec \"$@\"",
                "sh",
                kYoke,
                "run",
                "-n",
                "2",
                "--grace",
                "0.3",
                "--",
                "sh",
                "-c",
                words.argv.back()};
  words.folder = folder.path();
  const auto result = run(words);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("stopped the other rank, by SIGKILL after 0.3 s"));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(300));
}

TEST(Ending, SignalsAreForwarded) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    Command command(
        yoke_run_shell(2, "trap 'echo seen; exit 0' INT TERM HUP QUIT; echo ready; while :; do sleep 0.05; done"));
    ASSERT_TRUE(command.wait_for_output("[0] ready") && command.wait_for_output("[1] ready"));
    command.signal(signal);
    const auto result = command.wait();
    EXPECT_EQ(result.exit_code, 128 + signal);
    EXPECT_THAT(result.out, HasSubstr("[0] seen\n"));
    EXPECT_THAT(result.out, HasSubstr("[1] seen\n"));
  }
}

TEST(Ending, UserSignalsAreForwardedAndTheJobGoesOn) {
  Command command(
      yoke_run_shell(2, "trap 'echo saved' USR1; trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(command.wait_for_output("[0] ready") && command.wait_for_output("[1] ready"));
  command.signal(SIGUSR1);
  EXPECT_TRUE(command.wait_for_output("[0] saved") && command.wait_for_output("[1] saved"));
  command.signal(SIGTERM);
  EXPECT_EQ(command.wait().exit_code, 143);
}

TEST(Ending, CtrlCTwiceKillsAtOnce) {
  Command command(yoke_run({"-n", "2", "--grace", "1000", "--", kRank, "tree", "stubborn"}));
  ASSERT_TRUE(command.wait_for_output("[0] ready") && command.wait_for_output("[1] ready"));
  command.signal(SIGINT);
  ASSERT_TRUE(command.wait_for_output("Ctrl-C kills at once")) << "after a second the user is told";
  command.signal(SIGINT);
  const auto result = command.wait();  // ends long before the grace period is over
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err, HasSubstr("yoke run: SIGINT; stopped 2 ranks, 2 of them by SIGKILL\n"));
}

// Until it is continued, a stopped process does not handle a signal, and would be killed after the grace.
TEST(Ending, AStoppedRankCanSave) {
  Command command(yoke_run_shell(2,
                                 "trap 'echo saved; exit 0' TERM; echo ready $$.; [ $RANK = 0 ] || kill -STOP $$; "
                                 "while :; do sleep 0.05; done"));
  ASSERT_TRUE(command.wait_for_output("[0] ready") && command.wait_for_output("[1] ready"));
  const auto begin = command.out().find("[1] ready ") + 10;
  const pid_t stopped = std::stoi(command.out().substr(begin, command.out().find('.', begin) - begin));
  ASSERT_TRUE(command.wait_until([&] { return state_of(stopped) == 'T'; }));
  command.signal(SIGTERM);
  const auto result = command.wait();
  EXPECT_THAT(result.out, HasSubstr("[1] saved"));
  EXPECT_THAT(result.err, Not(HasSubstr("SIGKILL")));
}

TEST(Ending, NohupIsRespected) {
  auto options = yoke_run_shell(2, "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done");
  options.argv.insert(options.argv.begin(), {"sh", "-c", "trap '' HUP; exec \"$@\"", "sh"});
  Command command(options);
  ASSERT_TRUE(command.wait_for_output("[0] ready") && command.wait_for_output("[1] ready"));
  command.signal(SIGHUP);
  command.signal(SIGTERM);
  EXPECT_EQ(command.wait().exit_code, 143);
}

// A rank that is a shell ends at the signal. The program that the shell started must still have the grace period.
TEST(Ending, ProgramsBelowAShellHaveTheirGrace) {
  Command command(
      yoke_run_shell(2,
                     "(trap 'sleep 0.3; echo saved; exit' TERM; echo ready; while :; do sleep 0.05; done) & "
                     "wait; exit 0"));
  ASSERT_TRUE(command.wait_for_output("[0] ready") && command.wait_for_output("[1] ready"));
  command.signal(SIGTERM);
  const auto result = command.wait();
  EXPECT_THAT(result.out, HasSubstr("[0] saved"));
  EXPECT_THAT(result.out, HasSubstr("[1] saved"));
}

/// Returns the CPU time of this process's ended children and of their children.
milliseconds time_of_children() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec;
  return milliseconds(seconds * 1000 + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000);
}

// Compares CPU times, because other work on the machine hardly changes them. bench/launch measures the time from
// command to exit.
TEST(Ending, TakesMilliseconds) {
  const auto least = [](const std::vector<std::string>& argv) {
    auto best = milliseconds::max();
    for (int i = 0; i < (kIsSanitized ? 1 : 30); ++i) {
      const auto before = time_of_children();
      EXPECT_EQ(run({.argv = argv}).exit_code, 0);
      best = std::min(best, time_of_children() - before);
    }
    return best.count();
  };
  EXPECT_LE(least({kYoke, "--version"}), kIsSanitized ? 1000 : 8);
  EXPECT_LE(least({kYoke, "run", "-n", "2", "--", "true"}), kIsSanitized ? 2000 : 30);
  const auto libraries = run({.argv = {"ldd", kYoke}});
  EXPECT_EQ(libraries.exit_code, 0);
  for (const char* heavy : {"libtorch", "libc10", "libcuda", "libhwloc"})
    EXPECT_THAT(libraries.out, Not(HasSubstr(heavy)));
}

}  // namespace
}  // namespace yoke::test

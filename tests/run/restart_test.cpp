// Tests restarts, log files and the messages about a failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <filesystem>
#include <random>

#include "tests/run/launch.h"

namespace yoke::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

/// Runs `yoke run OPTIONS -- sh -c SCRIPT`, with a TMPDIR that must be empty afterwards.
Result run_in(const TemporaryFolder& folder, std::vector<std::string> options, const std::string& script) {
  fs::create_directories(folder.path("tmp"));
  options.insert(options.end(), {"--", "sh", "-c", script});
  auto command = yoke_run(std::move(options));
  command.environment = {{"TMPDIR", folder.path("tmp")}, {"F", folder.path()}};
  auto result = run(command);
  EXPECT_TRUE(fs::is_empty(folder.path("tmp"))) << "something was left in TMPDIR";
  return result;
}

/// Whether no signal is pending for the process.
bool has_taken_its_signals(pid_t pid) {
  return slurp("/proc/" + std::to_string(pid) + "/status").find("\nShdPnd:\t0000000000000000\n") != std::string::npos;
}

TEST(Restart, AllRanksBeginAgainUntilOneSucceeds) {
  const TemporaryFolder folder;
  const auto result = run_in(folder, {"-n", "3", "--max-restarts", "3"},
                             "echo $RANK $MASTER_PORT >> $F/ran-$TORCHELASTIC_RESTART_COUNT;"
                             "if [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ]; then exit 7; fi;"
                             "if [ $TORCHELASTIC_RESTART_COUNT -lt 2 ]; then exec sleep 60; fi");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* restart : {"1 of 3", "2 of 3"}) {
    EXPECT_THAT(result.err, HasSubstr(std::string("exited with code 7; stopped the 2 other ranks; starting all ranks "
                                                  "again, restart ") +
                                      restart));
  }
  EXPECT_THAT(slurp(folder.path("ran-2")), AllOf(HasSubstr("0 "), HasSubstr("1 "), HasSubstr("2 ")));
  EXPECT_FALSE(fs::exists(folder.path("ran-3")));
}

TEST(Restart, TheLastFailureGivesItsCode) {
  const TemporaryFolder folder;
  const auto result = run_in(folder, {"-n", "2", "--max-restarts", "2", "--quiet"},
                             "[ $RANK = 1 ] || exec sleep 60; exit $((10 + TORCHELASTIC_RESTART_COUNT))");
  EXPECT_EQ(result.exit_code, 12);
  EXPECT_THAT(result.err, AllOf(Not(HasSubstr("again")), HasSubstr("exited with code 12; stopped the other rank\n")));
}

/// Reports that this rank has made $1 steps, less than 255.
const std::string kReport = R"(made() { printf "\\$(printf %o $(($1 + 1)))\0\0\0\0\0\0\0" > "$YOKE_PROGRESS"; }; )";

TEST(Restart, FollowsProgressIfTheLimitHasSteps) {
  const TemporaryFolder folder;
  const auto result = run_in(folder, {"-n", "2", "--max-restarts", "1/50steps"},
                             kReport +
                                 "[ $TORCHELASTIC_RESTART_COUNT = 3 ] && exit 0; [ $RANK = 1 ] || exec sleep 60;"
                                 "made $((60 * (TORCHELASTIC_RESTART_COUNT + 1))); kill -9 $$");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* restart :
       {"restart 1 (1 of 1 within 50 steps, at step ", "restart 2 (1 of 1", "restart 3 (1 of 1"}) {
    EXPECT_THAT(result.err, HasSubstr(restart));
  }

  const auto slow =
      run_in(folder, {"-n", "2", "--max-restarts", "1/50steps"},
             kReport + "[ $RANK = 1 ] || exec sleep 60; made $((10 * (TORCHELASTIC_RESTART_COUNT + 1))); exit 7");
  EXPECT_EQ(slow.exit_code, 7);
  EXPECT_THAT(slow.err, HasSubstr("there is no restart, because the limit of 1 within 50 steps is reached at step 20"));
}

TEST(Restart, TheSameFailureIsNotTriedAgain) {
  const TemporaryFolder folder;
  const auto result = run_in(folder, {"-n", "2", "--max-restarts", "9/50steps"},
                             kReport + "[ $RANK = 1 ] || exec sleep 60; made 12; exit 7");
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("restart 1 (1 of 9 within 50 steps, at step 12)"), Not(HasSubstr("restart 2")),
                    HasSubstr("there is no restart, because rank 1 ended in the same way after step 12 before")));
}

TEST(Restart, NoneFollowsAProgramThatNeverStarted) {
  const TemporaryFolder folder;
  const auto result = run_in(folder, {"-n", "2", "--max-restarts", "9/50steps"}, "echo no such option >&2; exit 2");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("no rank has reported a step of the training"), Not(HasSubstr("again, "))));
  const auto wrong = run(yoke_run({"--max-restarts", "3/steps", "--", "true"}));
  EXPECT_EQ(wrong.exit_code, 64);
  EXPECT_THAT(wrong.err, HasSubstr("--max-restarts 3/steps: give 0 to 1000000, or"));
}

TEST(Restart, ASignalEndsTheJobAndNotTheAttempt) {
  Command command(yoke_run({"-n", "2", "--max-restarts", "9", "--", "sh", "-c", "echo up; exec sleep 60"}));
  ASSERT_TRUE(command.wait_until([&] { return command.out().size() >= 14; }));
  command.signal(SIGTERM);
  const auto result = command.wait();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_EQ(result.out.size(), 14U) << result.out;
}

/// A signal arrives while the launcher ends the ranks of a failed attempt.
TEST(Restart, ASignalAfterAFailureEndsTheJobWithItsStatus) {
  const TemporaryFolder folder;
  auto options = yoke_run({"-n", "2", "--max-restarts", "9", "--", "sh", "-c",
                           "trap ': > stopping; until [ -e go ]; do sleep 0.05; done; exit 0' TERM; : > up.$RANK;"
                           "if [ $RANK = 1 ]; then until [ -e up.0 ]; do sleep 0.05; done; exit 1; fi;"
                           "while :; do sleep 0.05; done"});
  options.folder = folder.path();
  Command command(options);
  ASSERT_TRUE(wait_until([&] { return fs::exists(folder.path("stopping")); })) << command.err();
  command.signal(SIGTERM);
  ASSERT_TRUE(command.wait_until([&] { return has_taken_its_signals(command.pid()); })) << command.err();
  folder.write("go", "");
  const auto result = command.wait();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_THAT(result.err, EndsWith("exited with code 1; stopped the other rank\n"));
  EXPECT_THAT(result.err, HasSubstr("yoke run: SIGTERM after rank 1 (pid "));
}

/// Signals a job that restarts all the time, at random moments.
TEST(Restart, ASignalAtAnyMomentEndsTheJobWithItsStatus) {
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 30; ++round) {
    Command command(yoke_run({"-q", "-n", "2", "--max-restarts", "1000000", "--", "sh", "-c",
                              "[ $RANK = 1 ] || exec sleep 60; echo up; exit 1"}));
    ASSERT_TRUE(command.wait_for_output("up"));
    poll(nullptr, 0, static_cast<int>(random() % 20));  // clock: any moment will do
    command.signal(SIGTERM);
    const auto result = command.wait();
    ASSERT_EQ(result.exit_code, 143) << "round " << round << ": " << result.err;
  }
}

// At random moments, kills a process of a job that restarts all the time: the launcher, its guardian or a rank. No
// process may remain, even if the process is killed between two attempts.
TEST(Restart, KilledAtAnyMomentItLeavesNothing) {
  const int rounds = std::getenv("YOKE_LONG") != nullptr ? 10'000 : 30;
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    const TemporaryFolder folder;
    auto options =
        yoke_run({"-n", "2", "--max-restarts", "1000000", "--", "sh", "-c", "[ $RANK = 1 ] || exec sleep 60; exit 1"});
    const auto tag = new_tag();
    options.environment = {{"TMPDIR", folder.path()}, {"YOKE_TEST_TAG", tag}};
    Command command(options);
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 30'000);
    while (std::chrono::steady_clock::now() < until) {  // a busy wait is more precise than a timer
    }
    if (const auto victim = random() % 3; victim == 1) {
      if (const auto guardian = guardian_of(command.pid())) {
        kill(*guardian, SIGKILL);
        // If a rank failed before the kill, the exit status is that of this failure.
        EXPECT_THAT(command.wait().exit_code, testing::AnyOf(75, 1)) << "round " << round;
      }
    } else if (victim == 2) {
      const auto guardian = guardian_of(command.pid());
      const auto ranks = guardian ? children_of(*guardian) : std::vector<pid_t>();
      if (!ranks.empty()) kill(ranks[random() % ranks.size()], SIGKILL);
      command.wait_until([] { return false; }, milliseconds(random() % 5));  // clock: any moment will do
    }
    command.signal(SIGKILL);
    EXPECT_TRUE(wait_until([&] { return processes_with_tag(tag).empty(); })) << "round " << round;
    EXPECT_TRUE(wait_until([&] { return fs::is_empty(folder.path()); })) << "round " << round;
  }
}

TEST(Logs, AreWhereTorchrunHasThem) {
  const TemporaryFolder folder;
  const auto result = run_in(
      folder, {"-n", "2", "--log-dir", folder.path("logs"), "--tee", "1", "--redirects", "1:2", "--rdzv-id", "a/b"},
      "echo out $RANK; echo err $RANK >&2; printf no-end");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("[0] out 0\n"), HasSubstr("[1] out 1\n"), HasSubstr("[1] no-end\n")));
  EXPECT_THAT(result.err, AllOf(HasSubstr("[0] err 0\n"), Not(HasSubstr("err 1")), HasSubstr("logs are in ")));
  std::vector<fs::path> runs(fs::directory_iterator(folder.path("logs")), {});
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_THAT(runs[0].filename().string(), testing::StartsWith("a_b_"));
  const auto attempt = runs[0] / "attempt_0";
  EXPECT_EQ(slurp(attempt / "0/stdout.log"), "out 0\nno-end") << "as it was written, without prefix";
  EXPECT_EQ(slurp(attempt / "1/stderr.log"), "err 1\n");
  EXPECT_FALSE(fs::exists(attempt / "0/stderr.log"));
}

TEST(Logs, AFolderThatCannotBeIsSaidBeforeAnythingRuns) {
  const auto result = run(yoke_run({"--log-dir", "/proc/nothing", "--tee", "3", "--", "echo", "ran"}));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("making the log folder /proc/nothing"));
  EXPECT_EQ(result.out, "");
}

constexpr const char* kExplainAttempt =
    "echo '{\"message\": {\"message\": \"ValueError: sizes differ\", \"extraInfo\": "
    "{\"py_callstack\": \"\", \"timestamp\": \"1790000000\"}}}' > $TORCHELASTIC_ERROR_FILE;";

TEST(Failure, TheRankThatExplainsIsTheCause) {
  const TemporaryFolder folder;
  const auto result = run_in(folder, {"-n", "2"},
                             std::string("if [ $RANK = 1 ]; then ") + kExplainAttempt +
                                 " touch $F/written; exec sleep 60; fi;"
                                 "until [ -e $F/written ]; do sleep 0.05; done; exit 9");
  EXPECT_THAT(result.err, AllOf(HasSubstr("yoke run: rank 1 failed: ValueError: sizes differ\nyoke run: rank 1 (pid "),
                                EndsWith("exited with code 9; stopped the other rank\n")));
  EXPECT_EQ(result.exit_code, 9) << "of the one whose end was seen first";
}

/// Ends rank 0 with a report that names rank 1, which has come to `loop`.
std::string blame_rank_1(const std::string& kind, const std::string& loop) {
  return "if [ $RANK = 1 ]; then " + loop + " fi; until [ -e $F/ready ]; do sleep 0.05; done;" +
         R"(echo '{"message": {"message": "no", "extraInfo": {"timestamp": "1790000000",)" +
         R"( "cause": {"ranks": [1], "what": "differs", "kind": ")" + kind +
         R"("}}}}' > $TORCHELASTIC_ERROR_FILE; exit 9)";
}

TEST(Failure, WhoIsWaitedForIsNamedBesideTheCulprit) {
  const TemporaryFolder folder;
  const auto result = run_in(folder, {"-n", "2", "--grace", "2"},
                             blame_rank_1("differs", "trap '' TERM; touch $F/ready; while :; do sleep 0.05; done;"));
  EXPECT_THAT(result.err,
              ContainsRegex("yoke run: rank 1 \\(pid [0-9]+\\) differs; then rank 0 \\(pid [0-9]+\\) exited "
                            "with code 9; waiting up to [01].[0-9]+ s for rank 1 \\(pid [0-9]+\\) to stop"));
  EXPECT_EQ(result.exit_code, 9);
}

TEST(Failure, OneThatIsKilledIsTheCulpritThoughAnotherWasSeenToEndBefore) {
  const TemporaryFolder folder;
  const auto result =
      run_in(folder, {"-n", "2"},
             blame_rank_1("ended", "trap 'kill -9 $$' TERM; touch $F/ready; while :; do sleep 0.05; done;"));
  EXPECT_THAT(result.err, ContainsRegex("yoke run: rank 1 \\(pid [0-9]+\\) was killed by SIGKILL.*; then rank 0 \\(pid "
                                        "[0-9]+\\) exited with code 9; stopped the other rank\n$"));
  EXPECT_EQ(result.exit_code, 137);
}

TEST(Failure, LinesThatAreOutOfSightAreShownAgain) {
  const TemporaryFolder folder;
  const auto result = run_in(folder, {"-n", "2"},
                             "if [ $RANK = 1 ]; then echo why it failed >&2; touch $F/said;"
                             "  until [ -e $F/counted ]; do sleep 0.05; done; sleep 0.3; exit 1; fi;"
                             "until [ -e $F/said ]; do sleep 0.05; done;"
                             "sleep 0.1; seq 100; touch $F/counted; exec sleep 60");
  EXPECT_THAT(result.err, HasSubstr("yoke run: the last lines of rank 1:\n  why it failed\n"));
  const auto short_one = run_in(folder, {"-n", "2"}, "[ $RANK = 1 ] || exec sleep 60; echo why; exit 1");
  EXPECT_THAT(short_one.err, Not(HasSubstr("last lines")));
}

}  // namespace
}  // namespace yoke::test

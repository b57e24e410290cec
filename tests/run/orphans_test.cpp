// Tests that no process or file of a job remains, whichever of its processes is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <random>

#include "tests/run/launch.h"

namespace yoke::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// On an idle machine, processes must end within one second. This longer limit still detects a process that is not
/// ended, because it would remain for a minute.
constexpr milliseconds kSoon{20'000};

struct Job {
  explicit Job(CommandOptions options) : command((options.environment.emplace_back("YOKE_TEST_TAG", tag), options)) {}

  void expect_nothing_left() const {
    const auto gone = [&] { return processes_with_tag(tag).empty(); };
    EXPECT_TRUE(wait_until(gone, kSoon)) << processes_with_tag(tag).size() << " processes are left";
    for (const auto pid : processes_with_tag(tag)) kill(pid, SIGKILL);
  }

  std::string tag = new_tag();
  Command command;
};

/// Starts ranks with children, grandchildren and daemons that ignore all signals, and waits until they run.
struct StubbornJob : Job {
  StubbornJob() : Job(yoke_run({"-n", "2", "--", kRank, "tree", "stubborn"})) {
    EXPECT_TRUE(command.wait_for_output("[0] ready") && command.wait_for_output("[1] ready"));
    // The launcher, its guardian, and 2 ranks with 3 more processes each.
    EXPECT_TRUE(wait_until([&] { return processes_with_tag(tag).size() >= 10; }));
  }
};

TEST(Orphans, NoneWhenTheLauncherIsKilled) {
  StubbornJob job;
  job.command.signal(SIGKILL);
  job.expect_nothing_left();
}

TEST(Orphans, NoneWhenTheGuardianIsKilled) {
  StubbornJob job;
  const auto guardian = guardian_of(job.command.pid());
  ASSERT_TRUE(guardian);
  kill(*guardian, SIGKILL);
  const auto result = job.command.wait();
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err, HasSubstr("yoke run: the process that starts and watches the ranks (pid " +
                                    std::to_string(*guardian) + ") was killed; stopped 2 ranks, "));
  job.expect_nothing_left();
}

// If a shell starts a background job and then becomes yoke by exec, the background job is a child of yoke. Yoke must
// not end it.
TEST(Orphans, ProcessesOfBeforeAreNotOurs) {
  auto options = yoke_run({"-n", "2", "--", kRank, "tree"});
  options.argv.insert(options.argv.begin(), {"sh", "-c", "sleep 60 >&- 2>&- & echo before=$!.; exec \"$@\"", "sh"});
  Command command(options);
  ASSERT_TRUE(command.wait_for_output("[0] ready") && command.wait_for_output("[1] ready"));
  const auto guardian = guardian_of(command.pid());
  ASSERT_TRUE(guardian);
  kill(*guardian, SIGKILL);
  EXPECT_EQ(command.wait().exit_code, 75);
  const auto begin = command.out().find("before=") + 7;
  const pid_t before = std::stoi(command.out().substr(begin, command.out().find('.') - begin));
  EXPECT_EQ(kill(before, 0), 0) << "it was ended";
  kill(before, SIGKILL);
}

TEST(Orphans, SchedulersMaySignalEveryProcess) {
  Job job(yoke_run_shell(2, "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done"));
  ASSERT_TRUE(job.command.wait_for_output("[0] ready") && job.command.wait_for_output("[1] ready"));
  kill(*guardian_of(job.command.pid()), SIGTERM);
  job.command.signal(SIGTERM);
  const auto result = job.command.wait();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_THAT(result.out, HasSubstr("[0] saved"));
  EXPECT_THAT(result.out, HasSubstr("[1] saved"));
  job.expect_nothing_left();
}

TEST(Orphans, NoneAfterSuccess) {
  Job job(yoke_run({"-n", "2", "--", kRank, "orphan"}));
  EXPECT_EQ(job.command.wait().exit_code, 0);
  EXPECT_THAT(processes_with_tag(job.tag), IsEmpty()) << "at once, not soon";
}

// Python's resource_tracker frees shared memory after its rank has ended, so yoke must not kill it at once.
TEST(Orphans, HelpersMayCleanUpAfterTheirRank) {
  Job job(yoke_run_shell(2, "(trap '' TERM; while kill -0 $$ 2>&-; do sleep 0.01; done; echo cleaned) & exit 0"));
  const auto result = job.command.wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("[0] cleaned"));
  EXPECT_THAT(result.out, HasSubstr("[1] cleaned"));
}

TEST(Orphans, WhatRanksLeftIsNamed) {
  Job job(yoke_run_shell(2, "[ $RANK = 0 ] && exit; setsid sleep 60 > /dev/null 2>&1 & exit 0"));
  const auto result = job.command.wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err,
              testing::MatchesRegex("yoke run: ended what the ranks had left running: sleep \\(pid [0-9]+\\)\n"));
}

// Python's resource_tracker removes semaphores when its rank has ended. A kill that also kills it would leave them.
TEST(Orphans, TheResourceTrackerOfAKilledRankCanCleanUp) {
  const TemporaryFolder folder;
  folder.write("tracker", "while kill -0 $2 2>&-; do sleep 0.01; done; : > cleaned");
  auto options = yoke_run({"--grace", "0.2", "--", "sh", "-c",
                           "trap '' TERM; sh tracker 'from multiprocessing.resource_tracker import main;main(7)' $$ & "
                           "echo ready; while :; do sleep 0.01; done"});
  options.folder = folder.path();
  Job job(options);
  ASSERT_TRUE(job.command.wait_for_output("ready"));
  job.command.signal(SIGTERM);
  job.command.wait();
  EXPECT_TRUE(std::filesystem::exists(folder.path("cleaned")));
  EXPECT_THAT(processes_with_tag(job.tag), IsEmpty());
}

TEST(Orphans, NoneAfterAFailure) {
  Job job(yoke_run_shell(
      2, std::string("if [ $RANK = 1 ]; then ") + kRank + " orphan; exit 3; fi; exec " + kRank + " tree"));
  EXPECT_EQ(job.command.wait().exit_code, 3);
  EXPECT_THAT(processes_with_tag(job.tag), IsEmpty());
}

TEST(Orphans, RanksDieEvenIfBothAreKilledAtOnce) {
  const TemporaryFolder folder, logs;
  auto options = yoke_run({"-n", "2", "--replace", "9", "--log-dir", logs.path(), "--", "sh", "-c",
                           "echo kept > $YOKE_RANK_STATE.0; echo ready; exec sleep 60"});
  options.environment = {{"TMPDIR", folder.path()}};  // of what ranks keep, which remains until a later run
  Job job(options);
  ASSERT_TRUE(job.command.wait_for_output("[0] ready") && job.command.wait_for_output("[1] ready"));
  const auto guardian = guardian_of(job.command.pid());
  ASSERT_TRUE(guardian);
  job.command.signal(SIGSTOP);  // so that the launcher does not notice the guardian's end
  kill(*guardian, SIGKILL);
  job.command.signal(SIGKILL);
  job.expect_nothing_left();  // ranks get their death signal; processes that ranks started may remain, as documented
  const auto num_folders = [&] { return std::distance(std::filesystem::directory_iterator(folder.path()), {}); };
  EXPECT_EQ(num_folders(), 1);
  for (const auto& one : std::filesystem::directory_iterator(folder.path())) {
    last_write_time(one, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  }
  auto later = yoke_run({"--", "true"});
  later.environment = options.environment;
  EXPECT_EQ(run(later).exit_code, 0);
  EXPECT_EQ(num_folders(), 0) << "a later run removes the folder of a job that was killed";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(logs.path())) {
    EXPECT_FALSE(entry.is_regular_file()) << entry.path() << " is among the logs, which stay";
  }
}

// Kills launcher or guardian at arbitrary moments, beginning before the start of the first rank.
TEST(Orphans, KillCampaign) {
  const int rounds = std::getenv("YOKE_LONG") != nullptr ? 500 : 10;
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    Job job(yoke_run({"-n", "2", "--", kRank, "tree", "stubborn"}));
    const auto moment = std::chrono::microseconds(random() % 15'000);
    const bool kill_guardian = random() % 2 == 0;
    const auto until = std::chrono::steady_clock::now() + moment;
    while (std::chrono::steady_clock::now() < until) {  // a busy wait is more precise than a timer
    }
    if (const auto guardian = kill_guardian ? guardian_of(job.command.pid()) : std::nullopt) {
      kill(*guardian, SIGKILL);
      EXPECT_FALSE(job.command.wait().timed_out);
    } else {
      job.command.signal(SIGKILL);
    }
    job.expect_nothing_left();
    if (HasFailure()) {
      ADD_FAILURE() << "round " << round << ": killed the " << (kill_guardian ? "guardian" : "launcher") << " after "
                    << moment.count() << " us";
    }
  }
}

}  // namespace
}  // namespace yoke::test

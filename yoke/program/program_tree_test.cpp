#include "yoke/program/program_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <utility>

#include "tests/support/command.h"
#include "yoke/base/process.h"

namespace yoke::program {
namespace {

using std::chrono::milliseconds;
using enum TreeRole;
using enum TreeStep;

TEST(ProgramTree, EveryProcessIsToldOnceAndKilledAfterTheGrace) {
  struct Row {
    const char* what;
    TreeRole role;
    TreeTime time;
    bool is_told;
    TreeStep step;
  };
  constexpr milliseconds kNow(0), kSoon(5'000), kLate(10'000), kVeryLate(30'000);
  const Row rows[] = {
      {"the program", kOfSession, {kNow, kNow}, false, kTerminate},
      {"it was told", kOfSession, {kSoon, kSoon}, true, kNone},
      {"it was overlooked at the begin", kOfSession, {kSoon, kSoon}, false, kTerminate},
      {"the grace is over", kOfSession, {kLate, kLate}, true, kKill},
      {"it has started after the grace", kOfSession, {kLate, kLate}, false, kKill},
      {"a daemon", kOther, {kNow, kNow}, false, kTerminate},
      {"a daemon after the grace", kOther, {kLate, kLate}, true, kKill},
      {"the keeper of a container", kContainerKeeper, {kNow, {}}, false, kTerminate},
      {"it ends its container", kContainerKeeper, {kLate, {}}, true, kNone},
      {"it does not end", kContainerKeeper, {kVeryLate, {}}, true, kKill},
      {"the program beside a container", kOfSession, {kLate, {}}, true, kKill},
      {"a process of an engine", kOther, {kNow, {}}, false, kNone},
      {"a process of an engine, later", kOther, {kLate, {}}, false, kNone},
      {"a daemon, right after the containers", kOther, {kLate, kNow, true}, false, kNone},
      {"a daemon, when the containers have ended", kOther, {kLate, kSoon, true}, false, kTerminate},
      {"its own grace", kOther, {kVeryLate, kSoon}, true, kNone},
      {"its own grace is over", kOther, {kVeryLate, kLate}, true, kKill},
      {"a daemon, when a keeper does not end", kOther, {kVeryLate, {}}, false, kKill},
  };
  for (const auto& row : rows) EXPECT_EQ(tree_step(row.role, row.time, row.is_told), row.step) << row.what;
}

/// Waits for the next tick of Process::start_ticks: what starts in the tick of the first end() counts as told.
void wait_for_next_tick() {
  const auto tick = [] {
    timespec now = {};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return std::pair(now.tv_sec, now.tv_nsec / (1'000'000'000 / sysconf(_SC_CLK_TCK)));
  };
  const auto before = tick();
  EXPECT_TRUE(test::wait_until([&] { return tick() != before; }));
}

/// Starts a shell with this script, which prints "ready" on its standard output, and waits until it has.
pid_t start_shell(const std::string& script) {
  auto out = make_pipe();
  const pid_t shell = spawn({.argv = {"sh", "-c", script}, .out = out.write_end.value()});
  out.write_end.reset();
  char first = 0;
  EXPECT_EQ(read(out.read_end.value(), &first, 1), 1);
  wait_for_next_tick();
  return shell;
}

/// The program and its descendants have no more than SIGTERM, with which all of these end.
TEST(ProgramTree, EndsDaemonsAndOrphansButNotWhatWasThereOrIsLeftOut) {
  auto in = make_pipe();
  const SpawnOptions waiting{.argv = {"cat"}, .in = in.read_end.value()};
  const pid_t older = spawn(waiting);
  ProgramTree tree;
  const pid_t left_out = spawn(waiting);
  tree.leave_out(left_out);
  tree.leave_out(-1);
  const pid_t program = start_shell("(exec setsid sh -c 'echo ready; exec sleep 1000') & exec sleep 1000");
  EXPECT_FALSE(tree.is_ending());
  EXPECT_TRUE(test::wait_until([&] { return tree.end(program, {}).empty(); }));
  EXPECT_TRUE(tree.is_ending());
  EXPECT_EQ(wait_for_child(program), 128 + SIGTERM);
  std::vector<pid_t> running;
  for (const auto& process : launch::descendants()) running.push_back(process.pid);
  EXPECT_THAT(running, testing::UnorderedElementsAre(older, left_out)) << "orphans are reaped";
  in.write_end.reset();
  EXPECT_EQ(wait_for_child(older), 0);
  EXPECT_EQ(wait_for_child(left_out), 0);
}

TEST(ProgramTree, LeavesAnEngineToTheKeeperOfItsContainer) {
  ProgramTree tree;
  const pid_t engine = start_shell("exec setsid sh -c 'echo ready; exec sleep 1000'");
  const pid_t keeper = start_shell("trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done");
  ProcessTimes keepers;
  for (const auto& process : launch::descendants()) {
    if (process.pid == keeper) keepers[keeper] = process.start_ticks;
  }
  EXPECT_FALSE(tree.end(-1, keepers).empty());
  EXPECT_EQ(wait_for_child(keeper), 5);
  EXPECT_EQ(tree.end(-1, {}).size(), 1U) << "the engine has some time to remove the container";
  kill(engine, SIGKILL);
  EXPECT_EQ(wait_for_child(engine), 128 + SIGKILL) << "it got no signal before";
}

}  // namespace
}  // namespace yoke::program

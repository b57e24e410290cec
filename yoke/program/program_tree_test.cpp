#include "yoke/program/program_tree.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace yoke::program

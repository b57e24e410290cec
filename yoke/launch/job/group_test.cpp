#include "yoke/launch/job/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <string>

#include "yoke/base/signal_name.h"

namespace yoke::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
constexpr Group::Time kStart{seconds(1000)};
constexpr int exit_with(int code) { return code << 8; }  // as wait(2) has it

Group group_of(int64_t num_ranks) {
  Group group({.num_ranks = num_ranks, .grace = seconds(10)});
  for (int64_t rank = 0; rank < num_ranks; ++rank) group.on_started(rank);
  return group;
}

TEST(Group, SuccessHasNothingToSay) {
  auto group = group_of(2);
  EXPECT_EQ(group.on_exited(1, 11, 0, kStart).order, Order::kNone);
  EXPECT_EQ(group.on_exited(0, 10, 0, kStart).order, Order::kNone);
  EXPECT_EQ(group.exit_code(), 0);
  EXPECT_EQ(group.reason(), "");
}

TEST(Group, TheFirstFailureIsTheOneThatCounts) {
  auto group = group_of(3);
  const auto decision = group.on_exited(1, 11, exit_with(7), kStart);
  EXPECT_EQ(decision.order, Order::kSignal);
  EXPECT_EQ(decision.signal, SIGTERM);
  EXPECT_EQ(group.on_exited(0, 10, SIGTERM, kStart).order, Order::kNone);
  EXPECT_EQ(group.on_exited(2, 12, exit_with(1), kStart).order, Order::kNone);
  EXPECT_EQ(group.exit_code(), 7);
  EXPECT_EQ(group.reason(), "yoke run: rank 1 (pid 11) exited with code 7; stopped the 2 other ranks");
}

TEST(Group, NamesTheSignal) {
  auto group = group_of(2);
  group.on_exited(1, 123, SIGKILL, kStart);
  EXPECT_EQ(group.exit_code(), 137);
  EXPECT_EQ(group.reason(), "yoke run: rank 1 (pid 123) was killed by SIGKILL; stopped the other rank");
  EXPECT_EQ(signal_name(SIGRTMIN + 5), "signal " + std::to_string(SIGRTMIN + 5));
}

TEST(Group, CtrlCIsLeftToARankThatIsAloneAndRuns) {
  EXPECT_FALSE(group_of(2).leaves_interrupt_to_rank());
  EXPECT_FALSE(Group({.num_ranks = 1}).leaves_interrupt_to_rank()) << "there is none yet";
  auto group = group_of(1);
  EXPECT_TRUE(group.leaves_interrupt_to_rank());
  group.on_signal(SIGTERM, kStart);
  EXPECT_FALSE(group.leaves_interrupt_to_rank());
  EXPECT_EQ(group.on_signal(SIGINT, kStart).order, Order::kKill);
}

TEST(Group, AfterCtrlCARankIsNotStartedAgain) {
  Group group({.num_ranks = 1, .max_restarts = 3});
  group.on_started(0);
  EXPECT_EQ(group.on_interrupt_of_rank(kStart).order, Order::kNone);
  EXPECT_EQ(group.exit_code(), 0) << "it is not the end of the job";
  group.on_exited(0, 10, SIGINT, kStart);
  EXPECT_EQ(group.begin_again(), std::nullopt);
  EXPECT_EQ(group.exit_code(), 130);
  EXPECT_EQ(group.reason(), "yoke run: rank 0 (pid 10) was killed by SIGINT");
}

TEST(Group, ManyCtrlCAreAnsweredByTheWayOut) {
  auto group = group_of(1);
  const auto press = [&](seconds after) { return group.on_interrupt_of_rank(kStart + after).notice; };
  for (const int time : {0, 10, 20, 21}) EXPECT_EQ(press(seconds(time)), "") << time;
  EXPECT_THAT(press(seconds(22)), HasSubstr("Ctrl-\\ ends the job"));
  EXPECT_EQ(press(seconds(22)), "") << "it was just said";
}

TEST(Group, WaitsForTheGraceThenKills) {
  auto group = group_of(3);
  group.on_exited(0, 10, exit_with(1), kStart);
  group.on_exited(1, 11, SIGTERM, kStart);
  ASSERT_EQ(group.next_time(), kStart + seconds(1));
  const auto notice = group.on_time(kStart + seconds(1));
  EXPECT_EQ(notice.order, Order::kNone);
  EXPECT_THAT(notice.notice, HasSubstr("waiting up to 9.0 s for 1 rank to stop"));
  ASSERT_EQ(group.next_time(), kStart + seconds(10));
  EXPECT_EQ(group.on_time(kStart + seconds(10)).order, Order::kKill);
  EXPECT_EQ(group.next_time(), std::nullopt);
  group.on_exited(2, 12, SIGKILL, kStart + seconds(10));
  EXPECT_EQ(group.exit_code(), 1);
  EXPECT_EQ(group.reason(),
            "yoke run: rank 0 (pid 10) exited with code 1; stopped the 2 other ranks, 1 of them by SIGKILL after 10 s");
}

TEST(Group, ASignalStopsAllAndTheSecondInterruptKills) {
  auto group = group_of(2);
  const auto first = group.on_signal(SIGINT, kStart);
  EXPECT_EQ(first.order, Order::kSignal);
  EXPECT_EQ(first.signal, SIGINT);
  EXPECT_EQ(group.on_signal(SIGINT, kStart).order, Order::kKill);
  EXPECT_EQ(group.on_signal(SIGINT, kStart).order, Order::kNone);
  EXPECT_EQ(group.exit_code(), 130);
  EXPECT_EQ(group.reason(), "yoke run: SIGINT; stopped 2 ranks, 2 of them by SIGKILL");
}

TEST(Group, ASignalCountsEvenIfTheRanksEndWell) {
  auto group = group_of(2);
  EXPECT_EQ(group.on_signal(SIGTERM, kStart).order, Order::kSignal);
  EXPECT_EQ(group.on_signal(SIGTERM, kStart).order, Order::kSignal) << "only Ctrl-C is impatient";
  group.on_exited(0, 10, 0, kStart);
  group.on_exited(1, 11, exit_with(3), kStart);
  EXPECT_EQ(group.exit_code(), 143);
}

TEST(Group, StopsWhenItIsAskedToWhateverSignalsEndIt) {
  Group group({.num_ranks = 2, .max_restarts = 3, .stop_signals = {SIGUSR1}});
  group.on_started(0);
  group.on_started(1);
  EXPECT_EQ(group.on_stop(StopHow::kWithGrace, kStart).order, Order::kSignal);
  EXPECT_EQ(group.on_stop(StopHow::kWithGrace, kStart).order, Order::kSignal) << "asked twice is not impatient";
  EXPECT_EQ(group.on_stop(StopHow::kNow, kStart).order, Order::kKill);
  EXPECT_EQ(group.on_stop(StopHow::kNow, kStart).order, Order::kNone);
  group.on_exited(0, 10, SIGKILL, kStart);
  group.on_exited(1, 11, SIGKILL, kStart);
  EXPECT_EQ(group.exit_code(), 143);
  EXPECT_EQ(group.reason(), "yoke run: `yoke stop`; stopped 2 ranks, 2 of them by SIGKILL");
  EXPECT_FALSE(group.begin_again());

  auto at_once = group_of(1);
  EXPECT_EQ(at_once.on_stop(StopHow::kNow, kStart).order, Order::kKill);
  at_once.on_exited(0, 10, SIGKILL, kStart);
  EXPECT_EQ(at_once.exit_code(), 143);
}

TEST(Group, RanksThatAreStillStartingAreCountedToo) {
  Group group({.num_ranks = 2});
  group.on_started(0);
  group.on_signal(SIGTERM, kStart);
  group.on_started(1);
  EXPECT_EQ(group.reason(), "yoke run: SIGTERM; stopped 2 ranks");
}

TEST(Group, UserSignalsArePassedOnAndNothingEnds) {
  auto group = group_of(1);
  EXPECT_EQ(group.on_signal(SIGUSR1, kStart).order, Order::kForward);
  EXPECT_EQ(group.next_time(), std::nullopt);
  EXPECT_EQ(group.exit_code(), 0);
}

TEST(Group, AProgramThatCannotBeRunHasTheShellsCodes) {
  auto missing = group_of(2);
  missing.on_cannot_run(0, "./train", ENOENT, kStart);
  missing.on_exited(0, 10, exit_with(127), kStart);
  missing.on_cannot_run(1, "./train", ENOENT, kStart);
  EXPECT_EQ(missing.exit_code(), 127);
  EXPECT_EQ(missing.reason(), "yoke run: cannot run './train': No such file or directory");
  auto refused = group_of(1);
  refused.on_cannot_run(0, "./train", EACCES, kStart);
  EXPECT_EQ(refused.exit_code(), 126);
}

TEST(Group, SaysThatTheGuardianWasKilled) {
  auto group = group_of(2);
  group.on_guardian_lost(99);
  EXPECT_NE(group.exit_code(), 0);
  EXPECT_THAT(group.reason(), HasSubstr("the guardian process (pid 99) was killed; stopped the 2 other ranks"));
}

TEST(Group, NamesWhatCannotBeKilled) {
  auto group = group_of(1);
  group.on_left_behind(41);
  group.on_left_behind(42);
  EXPECT_THAT(group.reason(), HasSubstr("SIGKILL does not end them"));
  EXPECT_THAT(group.reason(), HasSubstr("pid 41, 42"));
}

Group restarting_group(int64_t max_restarts) {
  Group group({.num_ranks = 2, .max_restarts = max_restarts});
  group.on_started(0);
  group.on_started(1);
  return group;
}

TEST(Group, BeginsAgainAfterAFailureAsOftenAsItMay) {
  auto group = restarting_group(2);
  for (int restart = 1; restart <= 2; ++restart) {
    EXPECT_EQ(group.on_exited(1, 11, exit_with(7), kStart).order, Order::kSignal);
    group.on_exited(0, 10, SIGTERM, kStart);
    ASSERT_TRUE(group.failure());
    EXPECT_EQ(group.failure()->rank, 1);
    const auto notice = group.begin_again();
    ASSERT_TRUE(notice);
    EXPECT_EQ(*notice,
              "yoke run: rank 1 (pid 11) exited with code 7; stopped the other rank; starting all ranks again, "
              "restart " +
                  std::to_string(restart) + " of 2");
    EXPECT_EQ(group.num_restarts(), restart);
    EXPECT_EQ(group.exit_code(), 0);
    EXPECT_EQ(group.reason(), "");
    EXPECT_EQ(group.next_time(), std::nullopt);
    group.on_started(0);
    group.on_started(1);
  }
  group.on_exited(0, 12, SIGSEGV, kStart);
  group.on_exited(1, 13, SIGTERM, kStart);
  EXPECT_FALSE(group.begin_again());
  EXPECT_EQ(group.exit_code(), 139);
}

TEST(Group, SuccessAfterARestartIsSuccess) {
  auto group = restarting_group(1);
  group.on_exited(0, 10, exit_with(1), kStart);
  group.on_exited(1, 11, SIGTERM, kStart);
  ASSERT_TRUE(group.begin_again());
  group.on_started(0);
  group.on_started(1);
  group.on_exited(0, 12, 0, kStart);
  group.on_exited(1, 13, 0, kStart);
  EXPECT_FALSE(group.begin_again());
  EXPECT_EQ(group.exit_code(), 0);
  EXPECT_EQ(group.reason(), "");
}

TEST(Group, DoesNotBeginAgainWhenToldToStop) {
  auto told_first = restarting_group(3);
  told_first.on_signal(SIGTERM, kStart);
  told_first.on_exited(0, 10, SIGTERM, kStart);
  told_first.on_exited(1, 11, SIGTERM, kStart);
  EXPECT_FALSE(told_first.begin_again());
  EXPECT_EQ(told_first.exit_code(), 143);
}

/// The order in which the launcher is told decides, not how far the end of the ranks has come.
TEST(Group, ASignalGivesTheStatusUnlessTheJobHasAlreadyFailed) {
  struct Case {
    std::string name;
    int64_t max_restarts;
    std::function<void(Group&)> before, after;  ///< The signal.
    int exit_code;
    std::string reason;
  };
  const auto fail = [](Group& group) { group.on_exited(0, 10, exit_with(5), kStart); };
  const auto stop_other = [](Group& group) { group.on_exited(1, 11, SIGTERM, kStart); };
  const auto kill_other = [](Group& group) {
    group.on_time(kStart + seconds(10));
    group.on_exited(1, 11, SIGKILL, kStart);
  };
  const auto lose_node = [](Group& group) { group.on_node_lost("lost host b: it is off", {0}, true, kStart); };
  const auto nothing = [](Group&) {};
  const auto both = [](const auto& one, const auto& other) {
    return [=](Group& group) {
      one(group);
      other(group);
    };
  };
  const std::string failed = "rank 0 (pid 10) exited with code 5";
  const Case kCases[] = {
      {"before the failure", 3, nothing, both(fail, stop_other), 143, "SIGTERM; stopped 2 ranks"},
      {"while the others stop", 3, fail, stop_other, 143, "SIGTERM after " + failed + "; stopped the other rank"},
      {"once all are gone", 3, both(fail, stop_other), nothing, 143,
       "SIGTERM after " + failed + "; stopped the other rank"},
      {"after the grace", 3, both(fail, kill_other), nothing, 143,
       "SIGTERM after " + failed + "; stopped the other rank, by SIGKILL after 10 s"},
      {"after a lost node", 0, lose_node, stop_other, 143,
       "SIGTERM after lost host b: it is off; stopped the other rank"},
      {"no restart is left", 0, fail, stop_other, 5, failed + "; stopped the other rank"},
      {"no restart is left, once all are gone", 0, both(fail, stop_other), nothing, 5,
       failed + "; stopped the other rank"},
  };
  for (const auto& one : kCases) {
    SCOPED_TRACE(one.name);
    auto group = restarting_group(one.max_restarts);
    one.before(group);
    group.on_signal(SIGTERM, kStart);
    one.after(group);
    EXPECT_FALSE(group.begin_again());
    EXPECT_EQ(group.exit_code(), one.exit_code);
    EXPECT_EQ(group.reason(), "yoke run: " + one.reason);
  }
}

TEST(Group, ASecondSignalDoesNotChangeTheStatus) {
  auto group = restarting_group(3);
  group.on_exited(0, 10, exit_with(5), kStart);
  group.on_signal(SIGTERM, kStart);
  EXPECT_EQ(group.on_signal(SIGINT, kStart).order, Order::kKill);
  EXPECT_EQ(group.exit_code(), 143);
}

// Neither the program nor the machine gets better by trying again.
TEST(Group, DoesNotBeginAgainWhatCannotRun) {
  auto group = restarting_group(3);
  group.on_cannot_run(0, "./train", ENOENT, kStart);
  group.on_exited(1, 11, exit_with(127), kStart);
  EXPECT_FALSE(group.begin_again());
  auto lost = restarting_group(3);
  lost.on_guardian_lost(99);
  EXPECT_FALSE(lost.begin_again());
  auto late = restarting_group(3);
  late.on_exited(1, 11, exit_with(1), kStart);
  late.on_guardian_lost(99);
  EXPECT_FALSE(late.begin_again()) << "although a rank failed before it";
}

TEST(Group, NamesTheHostWhereThereAreSeveral) {
  auto group = group_of(2);
  group.begin(2, {"a", "b"});
  group.on_exited(1, 11, exit_with(3), kStart);
  EXPECT_THAT(group.reason(), HasSubstr("rank 1 (pid 11 on b) exited with code 3; stopped the other rank"));
}

TEST(Group, ALostNodeIsAFailureUnlessTheOthersMayGoOn) {
  auto fixed = restarting_group(1);
  EXPECT_EQ(fixed.on_node_lost("lost host b: it is off", {1, 2}, false, kStart).order, Order::kSignal);
  EXPECT_EQ(fixed.exit_code(), 75);
  EXPECT_THAT(fixed.reason(), HasSubstr("lost host b: it is off; stopped the other rank"));
  EXPECT_TRUE(fixed.begin_again());
  EXPECT_EQ(fixed.num_restarts(), 1);
  fixed.on_node_lost("lost host b: it is off", {1, 2}, false, kStart);
  EXPECT_FALSE(fixed.begin_again()) << "no restart is left";

  auto elastic = restarting_group(0);
  elastic.on_node_lost("lost host b: it is off", {1, 2}, true, kStart);
  const auto notice = elastic.begin_again();
  ASSERT_TRUE(notice);
  EXPECT_THAT(*notice, testing::EndsWith("starting all ranks again"));
  EXPECT_EQ(elastic.num_restarts(), 0);
  EXPECT_EQ(elastic.num_starts(), 1);
}

TEST(Group, ARankThatMissesALostNodeIsNoFailure) {
  auto group = restarting_group(0);
  group.on_exited(0, 10, exit_with(1), kStart);
  group.on_node_lost("lost host b: it is off", {1}, true, kStart);
  EXPECT_TRUE(group.begin_again());
  EXPECT_EQ(group.num_restarts(), 0);
}

TEST(Group, ANodeThatLeavesStopsTheRanksAndIsNoFailure) {
  auto group = restarting_group(0);
  const auto decision = group.on_node_leaving("host b leaves (SIGUSR1)", SIGTERM, kStart);
  EXPECT_EQ(decision.order, Order::kSignal);
  EXPECT_EQ(decision.signal, SIGTERM);
  for (int64_t rank = 0; rank < 3; ++rank) group.on_exited(rank, 10, 0, kStart);
  EXPECT_TRUE(group.begin_again()) << "although all ended well: they saved their work";
}

TEST(Group, SignalsToTheLaunchersOfAllNodesAreOneWish) {
  auto group = group_of(2);
  EXPECT_EQ(group.on_signal(SIGINT, kStart, 2).order, Order::kSignal);
  EXPECT_EQ(group.on_signal(SIGINT, kStart, 0).order, Order::kNone);
  EXPECT_EQ(group.on_signal(SIGINT, kStart, 1).order, Order::kNone);
  EXPECT_EQ(group.on_signal(SIGINT, kStart, 1).order, Order::kKill) << "now it is the second";
}

TEST(Group, TheEndOfTheStoreIsAFailure) {
  auto group = restarting_group(1);
  EXPECT_EQ(group.on_store_ended(5, " on a", SIGKILL, kStart).order, Order::kSignal);
  EXPECT_THAT(group.reason(), HasSubstr("the process that serves the ranks' store (pid 5 on a) was killed by SIGKILL"));
  EXPECT_TRUE(group.begin_again());
}

TEST(Group, StopsForTheSignalsThatItIsToldTo) {
  Group group({.num_ranks = 1, .stop_signals = {SIGUSR1}});
  group.on_started(0);
  EXPECT_EQ(group.on_signal(SIGUSR2, kStart).order, Order::kForward);
  EXPECT_EQ(group.on_signal(SIGUSR1, kStart).order, Order::kSignal);
}

}  // namespace
}  // namespace yoke::launch

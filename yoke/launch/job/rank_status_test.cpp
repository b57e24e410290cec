// The status of a job in which one rank has failed, and another one that lost it is seen to end first.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

#include "yoke/launch/job/rank_policy.h"

namespace yoke::launch {
namespace {

class RankStatus : public testing::Test {
 protected:
  static constexpr RankPolicy::Time kNow{};
  static constexpr const char* kError = "Target 6 is out of bounds.";

  RankStatus() {
    for (const int64_t rank : {0, 1}) policy_.on_started(rank, 10 + static_cast<int>(rank));
  }
  /// Rank 0 ends, and rank 1 has failed by itself and ends later.
  void fail(int first, int second) {
    policy_.on_exited({0, 10, first}, kNow);
    policy_.on_report(0, {.error = ErrorReport{"collective 7 lost its connection to another rank", "", {}}});
    policy_.on_report(1, {.error = ErrorReport{kError, "", {}}});
    policy_.on_exited({1, 11, second}, kNow);
  }

  RankPolicy policy_{{.num_ranks = 2}};
};

TEST_F(RankStatus, IsThatOfTheRankThatFailedIfTheFirstOneGaveUp) {
  fail(W_EXITCODE(75, 0), W_EXITCODE(64, 0));
  EXPECT_EQ(policy_.exit_code(), 64);
  EXPECT_EQ(policy_.reason(),
            "yoke run: rank 1 (pid 11) failed first; then rank 0 (pid 10) exited with code 75; stopped the other rank");
}

TEST_F(RankStatus, IsThatOfAnExceptionIfThatRankWasStoppedWhileItEnded) {
  fail(W_EXITCODE(75, 0), SIGTERM);
  EXPECT_EQ(policy_.exit_code(), 70);
}

TEST_F(RankStatus, IsThatOfTheFirstOneIfThatDidNotGiveUp) {
  fail(W_EXITCODE(9, 0), W_EXITCODE(64, 0));
  EXPECT_EQ(policy_.exit_code(), 9);
}

// It takes seconds to give its memory back, and the one that lost it ends before.
TEST_F(RankStatus, IsThatOfARankThatIsKilledForWantOfMemory) {
  for (const std::string why : {" for want of memory", ""}) {
    RankPolicy policy({.num_ranks = 2});
    for (const int64_t rank : {0, 1}) policy.on_started(rank, 10 + static_cast<int>(rank));
    policy.on_exited({0, 10, SIGABRT}, kNow);
    policy.on_exited({1, 11, SIGKILL, why}, kNow);
    policy.on_report(0, {.error = ErrorReport{"collective 7 lost its connection to another rank", "", {}}});
    EXPECT_EQ(policy.exit_code(), 137);
    EXPECT_EQ(policy.reason(), "yoke run: rank 1 (pid 11) was killed by SIGKILL" + why +
                                   "; then rank 0 (pid 10) was killed by SIGABRT; stopped the other rank");
  }
}

TEST_F(RankStatus, IsNotThatOfARankThatTheLauncherKills) {
  policy_.on_exited({0, 10, W_EXITCODE(124, 0)}, kNow);
  policy_.on_report(0, {.error = ErrorReport{"collective 7 lost its connection to another rank", "", {}}});
  policy_.on_time(*policy_.next_time());
  ASSERT_EQ(policy_.on_time(*policy_.next_time()).order, Order::kKill);
  policy_.on_exited({1, 11, SIGKILL}, kNow);
  EXPECT_EQ(policy_.exit_code(), 124);
}

TEST_F(RankStatus, IsSaidWithTheCulpritWhileOthersAreToldToEnd) {
  policy_.on_started(2, 12);
  policy_.on_exited({0, 10, W_EXITCODE(124, 0)}, kNow);
  policy_.on_early_report(0, {.message = "timed out", .time = {}, .cause = {{1}, "had not entered collective 7"}});
  EXPECT_EQ(
      policy_.on_time(*policy_.next_time()).notice,
      "yoke run: rank 1 (pid 11) had not entered collective 7; then rank 0 (pid 10) exited with code 124; waiting "
      "up to 9.0 s for ranks 1-2 to stop; Ctrl-C kills at once");
}

// The others wait for a process that takes its place, and there will be none.
TEST_F(RankStatus, IsAFailureIfARankLeavesItsTrainingWithStatusZeroWhereRanksAreReplaced) {
  for (const int64_t replacements : {0, 2}) {
    RankPolicy policy({.num_ranks = 3, .replacements = replacements});
    for (const int64_t rank : {0, 1, 2}) policy.on_started(rank, 10 + static_cast<int>(rank));
    const auto decision = policy.on_exited({.rank = 1, .pid = 11, .wait_status = 0, .kept_step = 7}, kNow);
    if (replacements == 0) {
      EXPECT_EQ(decision.order, Order::kNone);
      continue;
    }
    EXPECT_EQ(decision.order, Order::kSignal);
    policy.on_exited({0, 10, W_EXITCODE(75, 0)}, kNow);
    policy.on_exited({2, 12, W_EXITCODE(75, 0)}, kNow);
    EXPECT_EQ(policy.exit_code(), 75);
    EXPECT_EQ(policy.reason(),
              "yoke run: rank 1 (pid 11) had ended with status 0 too early, after step 7 of its training, and is not "
              "replaced; stopped the 2 other ranks");
  }
  RankPolicy last({.num_ranks = 1, .replacements = 2});
  last.on_started(0, 10);
  last.on_exited({.rank = 0, .pid = 10, .wait_status = 0, .kept_step = 7}, kNow);
  EXPECT_EQ(last.exit_code(), 0) << "nobody waits for it";
}

// Its place is taken, and what it left there is no failure of the job.
TEST_F(RankStatus, IsNotThatOfAnEarlyReportOfARankThatIsReplaced) {
  policy_.on_early_report(0, {"sizes differ", "", {}});
  EXPECT_TRUE(policy_.facts().reports.empty());
}

TEST_F(RankStatus, IsZeroButWhatRanksHaveCaughtIsSaid) {
  using std::chrono::seconds;
  policy_.on_exited({0, 10, 0}, kNow);
  policy_.on_exited({1, 11, 0}, kNow);
  EXPECT_EQ(policy_.reason(), "");
  const std::chrono::system_clock::time_point time(seconds(1'790'000'000));
  policy_.on_report(0, {.error = ErrorReport{"collective 7 lost its connection", "", time + seconds(1)}});
  EXPECT_EQ(policy_.reason(),
            "yoke run: rank 0 ended with status 0, but its program has caught an error, so the training may be "
            "incomplete; rank 0: collective 7 lost its connection");
  policy_.on_report(1, {.error = ErrorReport{"the ranks wait in\ndifferent collectives", "", time}});
  EXPECT_EQ(policy_.reason(),
            "yoke run: ranks 0-1 ended with status 0, but their programs have caught an error, so the training may be "
            "incomplete; rank 1: the ranks wait in different collectives");
  EXPECT_EQ(policy_.exit_code(), 0);
}

/// The launcher of that guardian has killed its ranks.
TEST_F(RankStatus, RanksOfOtherHostsHaveTheGraceWhenAGuardianWasKilled) {
  const auto decision = policy_.on_guardian_lost(99, {1}, " on b", kNow);
  EXPECT_EQ(decision.order, Order::kSignal);
  EXPECT_EQ(decision.signal, SIGTERM);
  EXPECT_EQ(policy_.exit_code(), 75);
  EXPECT_EQ(policy_.on_time(kNow + std::chrono::seconds(10)).order, Order::kKill);
  EXPECT_EQ(policy_.reason(),
            "yoke run: the process that starts and watches the ranks (pid 99 on b) was killed; stopped 2 ranks, 2 of "
            "them by SIGKILL after 10 s");
}

}  // namespace
}  // namespace yoke::launch

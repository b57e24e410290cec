#include "yoke/launch/job/rank_policy.h"

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
constexpr RankPolicy::Time kStart{seconds(1000)};
constexpr int exit_with(int code) { return code << 8; }  // in the form of wait(2)

RankPolicy policy_of(int64_t num_ranks) {
  RankPolicy policy({.num_ranks = num_ranks, .grace = seconds(10)});
  for (int64_t rank = 0; rank < num_ranks; ++rank) policy.on_started(rank, 10 + static_cast<int>(rank));
  return policy;
}

/// Returns the notice if all ranks start again.
std::optional<std::string> notice_of_restart(RankPolicy& policy) {
  const auto restart = policy.begin_again();
  return restart ? std::optional(restart->notice) : std::nullopt;
}

TEST(RankPolicy, SuccessHasNothingToSay) {
  auto policy = policy_of(2);
  EXPECT_EQ(policy.on_exited({1, 11, 0}, kStart).order, Order::kNone);
  EXPECT_EQ(policy.on_exited({0, 10, 0}, kStart).order, Order::kNone);
  EXPECT_EQ(policy.exit_code(), 0);
  EXPECT_EQ(policy.reason(), "");
}

TEST(RankPolicy, ARankIsReplacedOnlyWhileAnotherOneRunsAndAllGoOn) {
  const auto policy_that_replaces = [] {
    RankPolicy policy({.num_ranks = 2, .replacements = 5});
    for (const int64_t rank : {0, 1}) policy.on_started(rank, 10 + static_cast<int>(rank));
    return policy;
  };
  const auto killed = [](int64_t rank) {
    return RankEnd{.rank = rank, .pid = 10 + static_cast<int>(rank), .wait_status = SIGKILL, .kept_step = 3};
  };
  auto both = policy_that_replaces();
  EXPECT_TRUE(both.on_exited(killed(0), kStart).replacement);
  EXPECT_FALSE(both.on_exited(killed(1), kStart).replacement) << "nobody has the state";
  EXPECT_THAT(both.reason(), HasSubstr("no other rank runs"));

  auto stopping = policy_that_replaces();
  stopping.on_signal(SIGTERM, kStart);
  EXPECT_FALSE(stopping.on_exited(killed(1), kStart).replacement);

  auto failing = policy_that_replaces();
  const auto failed = failing.on_exited({1, 11, exit_with(1)}, kStart);
  EXPECT_FALSE(failed.replacement);
  EXPECT_EQ(failed.order, Order::kSignal);
  EXPECT_EQ(failing.reason(), "yoke run: rank 1 (pid 11) exited with code 1; stopped the other rank");

  auto leaving = policy_that_replaces();
  leaving.on_exited({0, 10, 0}, kStart);
  EXPECT_FALSE(leaving.on_exited(killed(1), kStart).replacement);
}

// A rank that leaves early with status 0 is no failure, but the others may wait for it in a collective.
TEST(RankPolicy, SaysOnceThatARankEndedWhileOthersGoOn) {
  auto policy = policy_of(4);
  EXPECT_EQ(policy.next_time(), std::nullopt);
  EXPECT_EQ(policy.on_exited({2, 12, 0}, kStart).notice, "");
  ASSERT_EQ(policy.next_time(), kStart + seconds(10));
  const auto decision = policy.on_time(kStart + seconds(10));
  EXPECT_EQ(decision.order, Order::kNone);
  EXPECT_EQ(decision.notice, "yoke run: rank 2 ended with status 0 10 s ago, and ranks 0-1,3 still run");
  EXPECT_EQ(policy.next_time(), std::nullopt) << "it was said";
  policy.on_exited({0, 10, 0}, kStart + seconds(20));
  EXPECT_EQ(policy.next_time(), std::nullopt);
  policy.on_exited({1, 11, 0}, kStart + seconds(20));
  policy.on_exited({3, 13, 0}, kStart + seconds(20));
  EXPECT_EQ(policy.exit_code(), 0);
  EXPECT_EQ(policy.reason(), "");

  auto several = policy_of(4);
  for (const int rank : {3, 0, 1}) several.on_exited({rank, 10 + rank, 0}, kStart + seconds(rank == 3 ? 0 : 5));
  EXPECT_EQ(several.on_time(kStart + seconds(10)).notice,
            "yoke run: ranks 0-1,3 ended with status 0, the first 10 s ago, and rank 2 still runs");

  auto together = policy_of(2);
  for (const int rank : {0, 1}) together.on_exited({rank, 10 + rank, 0}, kStart + seconds(rank));
  EXPECT_EQ(together.next_time(), std::nullopt) << "all have ended";
}

TEST(RankPolicy, AFailureNamesTheRanksThatHadLeft) {
  auto policy = policy_of(3);
  policy.on_exited({2, 12, 0}, kStart);
  EXPECT_EQ(policy.on_exited({0, 10, exit_with(1)}, kStart + milliseconds(3100)).order, Order::kSignal);
  EXPECT_EQ(policy.reason(),
            "yoke run: rank 0 (pid 10) exited with code 1 (rank 2 had ended with status 0, 3.1 s before); stopped the "
            "other rank");
  EXPECT_EQ(policy.next_time(), kStart + milliseconds(4100)) << "of the ranks that are being stopped";

  auto stopped = policy_of(4);
  for (const int rank : {0, 2}) stopped.on_exited({rank, 10 + rank, 0}, kStart + seconds(rank));
  stopped.on_signal(SIGINT, kStart + seconds(50));
  EXPECT_EQ(stopped.reason(),
            "yoke run: SIGINT (ranks 0,2 had ended with status 0, the first 50 s before); stopped 2 ranks");
}

TEST(RankPolicy, TheFirstFailureIsTheOneThatCounts) {
  auto policy = policy_of(3);
  const auto decision = policy.on_exited({1, 11, exit_with(7)}, kStart);
  EXPECT_EQ(decision.order, Order::kSignal);
  EXPECT_EQ(decision.signal, SIGTERM);
  EXPECT_EQ(policy.on_exited({0, 10, SIGTERM}, kStart).order, Order::kNone);
  EXPECT_EQ(policy.on_exited({2, 12, exit_with(1)}, kStart).order, Order::kNone);
  EXPECT_EQ(policy.exit_code(), 7);
  EXPECT_EQ(policy.reason(), "yoke run: rank 1 (pid 11) exited with code 7; stopped the 2 other ranks");
}

TEST(RankPolicy, NamesTheSignal) {
  auto policy = policy_of(2);
  policy.on_exited({1, 123, SIGKILL}, kStart);
  EXPECT_EQ(policy.exit_code(), 137);
  EXPECT_EQ(policy.reason(), "yoke run: rank 1 (pid 123) was killed by SIGKILL; stopped the other rank");
  EXPECT_EQ(signal_name(SIGRTMIN + 5), "signal " + std::to_string(SIGRTMIN + 5));
}

// It may hold a device that new ranks would need.
TEST(RankPolicy, ARankThatWaitsInTheKernelIsAFailureWithoutARestart) {
  RankPolicy policy({.num_ranks = 3, .kernel_sleep_limit = seconds(30), .restarts = {2}});
  for (int64_t rank = 0; rank < 3; ++rank) policy.on_started(rank, 10 + static_cast<int>(rank));
  policy.on_state(1, 'D', kStart - seconds(40));
  policy.on_state(1, 'S', kStart - seconds(31));
  EXPECT_EQ(policy.next_time(), std::nullopt);
  policy.on_state(1, 'D', kStart - seconds(30));
  EXPECT_EQ(policy.next_time(), kStart - seconds(20));
  EXPECT_THAT(policy.on_time(kStart - seconds(20)).notice,
              HasSubstr("rank 1 (pid 11) has waited in the kernel for 10 s"));
  EXPECT_EQ(policy.next_time(), kStart);
  const auto decision = policy.on_time(kStart);
  EXPECT_EQ(decision.order, Order::kSignal);
  EXPECT_EQ(decision.signal, SIGTERM);
  for (const int rank : {0, 2, 1}) policy.on_exited({rank, 10 + rank, SIGTERM}, kStart);
  EXPECT_EQ(notice_of_restart(policy), std::nullopt);
  EXPECT_EQ(policy.exit_code(), 75);
  EXPECT_EQ(policy.reason(),
            "yoke run: rank 1 (pid 11) has waited in the kernel for 30 s, where no signal reaches it "
            "(TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT); there is no restart, because it may hold a device; stopped "
            "the 2 other ranks");
}

TEST(RankPolicy, SaysOnceThatARankDoesNotRun) {
  auto policy = policy_of(3);
  policy.on_state(1, 'T', kStart);
  policy.on_state(2, 'D', kStart + seconds(1));
  policy.on_state(0, 'R', kStart);
  ASSERT_EQ(policy.next_time(), kStart + seconds(10));
  const auto decision = policy.on_time(kStart + seconds(10));
  EXPECT_EQ(decision.order, Order::kNone);
  EXPECT_EQ(
      decision.notice,
      "yoke run: rank 1 (pid 11) has been stopped for 10 s, and others may wait for it; `kill -CONT 11` continues "
      "it; `yoke stack` shows where the ranks are");
  ASSERT_EQ(policy.next_time(), kStart + seconds(11));
  EXPECT_EQ(
      policy.on_time(kStart + seconds(11)).notice,
      "yoke run: rank 2 (pid 12) has waited in the kernel for 10 s, and others may wait for it; a file system or a "
      "device may not answer; `yoke stack` shows where the ranks are");
  EXPECT_EQ(policy.next_time(), std::nullopt);
  policy.on_state(1, 'S', kStart + seconds(20));
  policy.on_state(1, 't', kStart + seconds(30));
  EXPECT_THAT(policy.on_time(*policy.next_time()).notice,
              HasSubstr("rank 1 (pid 11) has been stopped by a debugger for"));

  auto debugged = policy_of(1);
  debugged.on_state(0, 't', kStart);
  EXPECT_EQ(debugged.next_time(), std::nullopt) << "nobody waits for it";
}

/// The report of a rank that has waited for the ranks `causes`.
RankReport waited_for(std::vector<int64_t> causes, const std::string& what) {
  return {.error = ErrorReport{.message = "timed out", .time = {}, .cause = {std::move(causes), what}}};
}

TEST(RankPolicy, TheReasonBeginsWithTheCulprit) {
  auto policy = policy_of(3);
  policy.on_state(2, 'T', kStart);
  policy.on_exited({0, 10, exit_with(124)}, kStart + seconds(50));
  policy.on_exited({1, 11, SIGTERM}, kStart + seconds(50));
  policy.on_exited({2, 12, SIGTERM}, kStart + seconds(50));
  policy.on_report(0, waited_for({2}, "had not entered collective 7"));
  EXPECT_EQ(policy.reason(),
            "yoke run: rank 2 (pid 12) had been stopped for 50 s (SIGSTOP, Ctrl-Z); then rank 0 (pid 10) exited with "
            "code 124; stopped the 2 other ranks");

  auto early = policy_of(3);
  early.begin(3, {"a", "b", "c"});
  early.on_exited({1, 11, 0}, kStart);
  early.on_exited({0, 10, exit_with(75)}, kStart + seconds(3));
  early.on_exited({2, 12, SIGTERM}, kStart + seconds(3));
  early.on_report(0, waited_for({1}, "had not entered collective 7"));
  EXPECT_EQ(early.reason(),
            "yoke run: rank 1 (pid 11 on b) had ended with status 0 too early, 3.0 s before; then rank 0 (pid 10 on a) "
            "exited with code 75; stopped the other rank");

  auto several = policy_of(4);
  several.on_exited({0, 10, exit_with(124)}, kStart);
  several.on_report(0, waited_for({1, 3}, "had not entered collective 7"));
  EXPECT_EQ(
      several.reason(),
      "yoke run: ranks 1,3 had not entered collective 7; then rank 0 (pid 10) exited with code 124; stopped the 3 "
      "other ranks");
}

TEST(RankPolicy, TheCulpritIsNamedOnceIfItFailedFirst) {
  for (const auto kind : {FailureCause::Kind::kAbsent, FailureCause::Kind::kEnded}) {
    auto policy = policy_of(2);
    policy.on_exited({0, 10, exit_with(75)}, kStart);
    policy.on_report(0, {.error = ErrorReport{"collective 7 lost its connection to another rank", "", {}}});
    policy.on_report(1, {.error = ErrorReport{"timed out", "", {}, "", {{0}, "had not entered collective 7", kind}}});
    EXPECT_EQ(policy.reason(), kind == FailureCause::Kind::kAbsent
                                   ? "yoke run: rank 0 (pid 10) had not entered collective 7; then it exited with "
                                     "code 75; stopped the other rank"
                                   : "yoke run: rank 0 (pid 10) exited with code 75; stopped the other rank");
  }
}

TEST(RankPolicy, SaysMoreAboutAnEnd) {
  auto policy = policy_of(2);
  policy.on_exited({1, 11, SIGKILL, " for want of memory"}, kStart);
  EXPECT_EQ(policy.reason(),
            "yoke run: rank 1 (pid 11) was killed by SIGKILL for want of memory; stopped the other rank");
}

TEST(RankPolicy, CtrlCIsLeftToARankThatIsAloneAndRuns) {
  EXPECT_FALSE(policy_of(2).leaves_interrupt_to_rank());
  EXPECT_FALSE(RankPolicy({.num_ranks = 1}).leaves_interrupt_to_rank()) << "there is none yet";
  auto policy = policy_of(1);
  EXPECT_TRUE(policy.leaves_interrupt_to_rank());
  policy.on_signal(SIGTERM, kStart);
  EXPECT_FALSE(policy.leaves_interrupt_to_rank());
  EXPECT_EQ(policy.on_signal(SIGINT, kStart).order, Order::kKill);
}

TEST(RankPolicy, AfterCtrlCARankIsNotStartedAgain) {
  RankPolicy policy({.num_ranks = 1, .restarts = {3}});
  policy.on_started(0, 10);
  EXPECT_EQ(policy.on_interrupt_of_rank(kStart).order, Order::kNone);
  EXPECT_EQ(policy.exit_code(), 0) << "it is not the end of the job";
  policy.on_exited({0, 10, SIGINT}, kStart);
  EXPECT_EQ(notice_of_restart(policy), std::nullopt);
  EXPECT_EQ(policy.exit_code(), 130);
  EXPECT_EQ(policy.reason(), "yoke run: rank 0 (pid 10) was killed by SIGINT");
}

TEST(RankPolicy, ManyCtrlCAreAnsweredByTheWayOut) {
  auto policy = policy_of(1);
  const auto press = [&](seconds after) { return policy.on_interrupt_of_rank(kStart + after).notice; };
  for (const int time : {0, 10, 20, 21}) EXPECT_EQ(press(seconds(time)), "") << time;
  EXPECT_THAT(press(seconds(22)), HasSubstr("Ctrl-\\ ends the job"));
  EXPECT_EQ(press(seconds(22)), "") << "it was just said";
}

TEST(RankPolicy, WaitsForTheGraceThenKills) {
  auto policy = policy_of(3);
  policy.on_exited({0, 10, exit_with(1)}, kStart);
  policy.on_exited({1, 11, SIGTERM}, kStart);
  ASSERT_EQ(policy.next_time(), kStart + seconds(1));
  const auto notice = policy.on_time(kStart + seconds(1));
  EXPECT_EQ(notice.order, Order::kNone);
  EXPECT_THAT(notice.notice, HasSubstr("waiting up to 9.0 s for rank 2 (pid 12) to stop"));
  ASSERT_EQ(policy.next_time(), kStart + seconds(10));
  EXPECT_EQ(policy.on_time(kStart + seconds(10)).order, Order::kKill);
  EXPECT_EQ(policy.next_time(), std::nullopt);
  policy.on_exited({2, 12, SIGKILL}, kStart + seconds(10));
  EXPECT_EQ(policy.exit_code(), 1);
  EXPECT_EQ(policy.reason(),
            "yoke run: rank 0 (pid 10) exited with code 1; stopped the 2 other ranks, 1 of them by SIGKILL after 10 s");
}

TEST(RankPolicy, ASignalStopsAllAndTheSecondInterruptKills) {
  auto policy = policy_of(2);
  const auto first = policy.on_signal(SIGINT, kStart);
  EXPECT_EQ(first.order, Order::kSignal);
  EXPECT_EQ(first.signal, SIGINT);
  EXPECT_EQ(policy.on_signal(SIGINT, kStart + milliseconds(500)).order, Order::kNone)
      << "to the group: the same request";
  EXPECT_EQ(policy.on_signal(SIGINT, kStart + milliseconds(501)).order, Order::kKill);
  EXPECT_EQ(policy.on_signal(SIGINT, kStart + seconds(2)).order, Order::kNone);
  EXPECT_EQ(policy.exit_code(), 130);
  EXPECT_EQ(policy.reason(), "yoke run: SIGINT; stopped 2 ranks, 2 of them by SIGKILL");
}

TEST(RankPolicy, ASignalCountsEvenIfTheRanksEndWell) {
  auto policy = policy_of(2);
  EXPECT_EQ(policy.on_signal(SIGTERM, kStart).order, Order::kSignal);
  EXPECT_EQ(policy.on_signal(SIGTERM, kStart).order, Order::kSignal) << "only Ctrl-C is impatient";
  policy.on_exited({0, 10, 0}, kStart);
  policy.on_exited({1, 11, exit_with(3)}, kStart);
  EXPECT_EQ(policy.exit_code(), 143);
}

TEST(RankPolicy, StopsWhenItIsAskedToWhateverSignalsEndIt) {
  RankPolicy policy({.num_ranks = 2, .restarts = {3}, .stop_signals = {SIGUSR1}});
  policy.on_started(0, 10);
  policy.on_started(1, 11);
  EXPECT_EQ(policy.on_stop(StopHow::kWithGrace, kStart).order, Order::kSignal);
  EXPECT_EQ(policy.on_stop(StopHow::kWithGrace, kStart).order, Order::kSignal) << "asked twice is not impatient";
  EXPECT_EQ(policy.on_stop(StopHow::kNow, kStart).order, Order::kKill);
  EXPECT_EQ(policy.on_stop(StopHow::kNow, kStart).order, Order::kNone);
  policy.on_exited({0, 10, SIGKILL}, kStart);
  policy.on_exited({1, 11, SIGKILL}, kStart);
  EXPECT_EQ(policy.exit_code(), 143);
  EXPECT_EQ(policy.reason(), "yoke run: `yoke stop`; stopped 2 ranks, 2 of them by SIGKILL");
  EXPECT_FALSE(notice_of_restart(policy));

  auto at_once = policy_of(1);
  EXPECT_EQ(at_once.on_stop(StopHow::kNow, kStart).order, Order::kKill);
  at_once.on_exited({0, 10, SIGKILL}, kStart);
  EXPECT_EQ(at_once.exit_code(), 143);
}

TEST(RankPolicy, RanksThatAreStillStartingAreCountedToo) {
  RankPolicy policy({.num_ranks = 2});
  policy.on_started(0, 10);
  policy.on_signal(SIGTERM, kStart);
  policy.on_started(1, 11);
  EXPECT_EQ(policy.reason(), "yoke run: SIGTERM; stopped 2 ranks");
}

TEST(RankPolicy, UserSignalsArePassedOnAndNothingEnds) {
  auto policy = policy_of(1);
  EXPECT_EQ(policy.on_signal(SIGUSR1, kStart).order, Order::kForward);
  EXPECT_EQ(policy.next_time(), std::nullopt);
  EXPECT_EQ(policy.exit_code(), 0);
}

TEST(RankPolicy, AProgramThatCannotBeRunHasTheShellsCodes) {
  auto missing = policy_of(2);
  missing.on_cannot_run(0, "./train", ENOENT, kStart);
  missing.on_exited({0, 10, exit_with(127)}, kStart);
  missing.on_cannot_run(1, "./train", ENOENT, kStart);
  EXPECT_EQ(missing.exit_code(), 127);
  EXPECT_EQ(missing.reason(), "yoke run: cannot run './train': No such file or directory");
  auto refused = policy_of(1);
  refused.on_cannot_run(0, "./train", EACCES, kStart);
  EXPECT_EQ(refused.exit_code(), 126);
}

TEST(RankPolicy, SaysThatTheGuardianWasKilled) {
  auto policy = policy_of(2);
  EXPECT_EQ(policy.on_guardian_lost(99, {0, 1}, "", kStart).order, Order::kKill);
  EXPECT_NE(policy.exit_code(), 0);
  EXPECT_EQ(policy.reason(),
            "yoke run: the process that starts and watches the ranks (pid 99) was killed; stopped 2 ranks, 2 of them "
            "by SIGKILL");
}

TEST(RankPolicy, NamesWhatCannotBeKilled) {
  auto policy = policy_of(1);
  policy.on_left_behind(41);
  policy.on_left_behind(42);
  EXPECT_THAT(policy.reason(), HasSubstr("SIGKILL was sent and ends them when that call returns"));
  EXPECT_THAT(policy.reason(), HasSubstr("pid 41, 42"));
}

RankPolicy restarting_policy(int64_t max_restarts) {
  RankPolicy policy({.num_ranks = 2, .restarts = {max_restarts}});
  policy.on_started(0, 10);
  policy.on_started(1, 11);
  return policy;
}

TEST(RankPolicy, BeginsAgainAfterAFailureAsOftenAsItMay) {
  auto policy = restarting_policy(2);
  for (int restart = 1; restart <= 2; ++restart) {
    EXPECT_EQ(policy.on_exited({1, 11, exit_with(7)}, kStart).order, Order::kSignal);
    policy.on_exited({0, 10, SIGTERM}, kStart);
    ASSERT_TRUE(policy.failure());
    EXPECT_EQ(policy.failure()->rank, 1);
    const auto notice = notice_of_restart(policy);
    ASSERT_TRUE(notice);
    EXPECT_EQ(*notice,
              "yoke run: rank 1 (pid 11) exited with code 7; stopped the other rank; starting all ranks again, "
              "restart " +
                  std::to_string(restart) + " of 2");
    EXPECT_EQ(policy.num_restarts(), restart);
    EXPECT_EQ(policy.exit_code(), 0);
    EXPECT_EQ(policy.reason(), "");
    EXPECT_EQ(policy.next_time(), std::nullopt);
    policy.on_started(0, 10);
    policy.on_started(1, 11);
  }
  policy.on_exited({0, 12, SIGSEGV}, kStart);
  policy.on_exited({1, 13, SIGTERM}, kStart);
  EXPECT_FALSE(notice_of_restart(policy));
  EXPECT_EQ(policy.exit_code(), 139);
}

TEST(RankPolicy, SuccessAfterARestartIsSuccess) {
  auto policy = restarting_policy(1);
  policy.on_exited({0, 10, exit_with(1)}, kStart);
  policy.on_exited({1, 11, SIGTERM}, kStart);
  ASSERT_TRUE(notice_of_restart(policy));
  policy.on_started(0, 10);
  policy.on_started(1, 11);
  policy.on_exited({0, 12, 0}, kStart);
  policy.on_exited({1, 13, 0}, kStart);
  EXPECT_FALSE(notice_of_restart(policy));
  EXPECT_EQ(policy.exit_code(), 0);
  EXPECT_EQ(policy.reason(), "");
}

TEST(RankPolicy, DoesNotBeginAgainWhenToldToStop) {
  auto told_first = restarting_policy(3);
  told_first.on_signal(SIGTERM, kStart);
  told_first.on_exited({0, 10, SIGTERM}, kStart);
  told_first.on_exited({1, 11, SIGTERM}, kStart);
  EXPECT_FALSE(notice_of_restart(told_first));
  EXPECT_EQ(told_first.exit_code(), 143);
}

/// The cause of the end is the first event that the launcher learns of, however many ranks have ended by then.
TEST(RankPolicy, ASignalGivesTheStatusUnlessTheJobHasAlreadyFailed) {
  struct Case {
    std::string name;
    int64_t max_restarts;
    std::function<void(RankPolicy&)> before, after;  ///< Called before and after the signal.
    int exit_code;
    std::string reason;
  };
  const auto fail = [](RankPolicy& policy) { policy.on_exited({0, 10, exit_with(5)}, kStart); };
  const auto stop_other = [](RankPolicy& policy) { policy.on_exited({1, 11, SIGTERM}, kStart); };
  const auto kill_other = [](RankPolicy& policy) {
    policy.on_time(kStart + seconds(10));
    policy.on_exited({1, 11, SIGKILL}, kStart);
  };
  const auto lose_node = [](RankPolicy& policy) { policy.on_node_lost("lost host b: it is off", {0}, true, kStart); };
  const auto nothing = [](RankPolicy&) {};
  const auto both = [](const auto& one, const auto& other) {
    return [=](RankPolicy& policy) {
      one(policy);
      other(policy);
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
      {"before the next start", 3, both(both(fail, stop_other), [](RankPolicy& policy) { policy.begin_again(); }),
       nothing, 143, "SIGTERM before the next start, after " + failed},
      {"no restart is left", 0, fail, stop_other, 5, failed + "; stopped the other rank"},
      {"no restart is left, once all are gone", 0, both(fail, stop_other), nothing, 5,
       failed + "; stopped the other rank"},
  };
  for (const auto& one : kCases) {
    SCOPED_TRACE(one.name);
    auto policy = restarting_policy(one.max_restarts);
    one.before(policy);
    policy.on_signal(SIGTERM, kStart);
    one.after(policy);
    EXPECT_FALSE(notice_of_restart(policy));
    EXPECT_EQ(policy.exit_code(), one.exit_code);
    EXPECT_EQ(policy.reason(), "yoke run: " + one.reason);
  }
}

TEST(RankPolicy, ASecondSignalDoesNotChangeTheStatus) {
  auto policy = restarting_policy(3);
  policy.on_exited({0, 10, exit_with(5)}, kStart);
  policy.on_signal(SIGTERM, kStart);
  EXPECT_EQ(policy.on_signal(SIGINT, kStart).order, Order::kKill);
  EXPECT_EQ(policy.exit_code(), 143);
}

// A program that cannot be run would fail again in a new attempt.
TEST(RankPolicy, DoesNotBeginAgainWhatCannotRun) {
  auto policy = restarting_policy(3);
  policy.on_cannot_run(0, "./train", ENOENT, kStart);
  policy.on_exited({1, 11, exit_with(127)}, kStart);
  EXPECT_FALSE(notice_of_restart(policy));
  auto lost = restarting_policy(3);
  lost.on_guardian_lost(99, {0, 1}, "", kStart);
  EXPECT_FALSE(notice_of_restart(lost));
  auto late = restarting_policy(3);
  late.on_exited({1, 11, exit_with(1)}, kStart);
  late.on_guardian_lost(99, {0, 1}, "", kStart);
  EXPECT_FALSE(notice_of_restart(late)) << "although a rank failed before it";
}

TEST(RankPolicy, NamesTheHostWhereThereAreSeveral) {
  auto policy = policy_of(2);
  policy.begin(2, {"a", "b"});
  policy.on_exited({1, 11, exit_with(3)}, kStart);
  EXPECT_THAT(policy.reason(), HasSubstr("rank 1 (pid 11 on b) exited with code 3; stopped the other rank"));
}

TEST(RankPolicy, ALostNodeIsAFailureUnlessTheOthersMayGoOn) {
  auto fixed = restarting_policy(1);
  EXPECT_EQ(fixed.on_node_lost("lost host b: it is off", {1, 2}, false, kStart).order, Order::kSignal);
  EXPECT_EQ(fixed.exit_code(), 75);
  EXPECT_THAT(fixed.reason(), HasSubstr("lost host b: it is off; stopped the other rank"));
  EXPECT_TRUE(notice_of_restart(fixed));
  EXPECT_EQ(fixed.num_restarts(), 1);
  fixed.on_node_lost("lost host b: it is off", {1, 2}, false, kStart);
  EXPECT_FALSE(notice_of_restart(fixed)) << "no restart is left";

  auto elastic = restarting_policy(0);
  elastic.on_node_lost("lost host b: it is off", {1, 2}, true, kStart);
  const auto notice = notice_of_restart(elastic);
  ASSERT_TRUE(notice);
  EXPECT_THAT(*notice, testing::EndsWith("starting all ranks again"));
  EXPECT_EQ(elastic.num_restarts(), 0);
  EXPECT_EQ(elastic.num_starts(), 1);
}

TEST(RankPolicy, ARankThatMissesALostNodeIsNoFailure) {
  auto policy = restarting_policy(0);
  policy.on_exited({0, 10, exit_with(1)}, kStart);
  policy.on_node_lost("lost host b: it is off", {1}, true, kStart);
  EXPECT_TRUE(notice_of_restart(policy));
  EXPECT_EQ(policy.num_restarts(), 0);
}

TEST(RankPolicy, ANodeThatLeavesStopsTheRanksAndIsNoFailure) {
  auto policy = restarting_policy(0);
  const auto decision = policy.on_node_leaving("host b received SIGUSR1 and leaves the job", SIGTERM, kStart);
  EXPECT_EQ(decision.order, Order::kSignal);
  EXPECT_EQ(decision.signal, SIGTERM);
  for (int64_t rank = 0; rank < 3; ++rank) policy.on_exited({rank, 10, 0}, kStart);
  EXPECT_TRUE(notice_of_restart(policy)) << "although all ended well: they saved their work";
}

TEST(RankPolicy, SignalsToTheLaunchersOfAllNodesAreOneWish) {
  auto policy = policy_of(2);
  EXPECT_EQ(policy.on_signal(SIGINT, kStart, 2).order, Order::kSignal);
  EXPECT_EQ(policy.on_signal(SIGINT, kStart, 0).order, Order::kNone);
  EXPECT_EQ(policy.on_signal(SIGINT, kStart, 1).order, Order::kNone);
  EXPECT_EQ(policy.on_signal(SIGINT, kStart + seconds(1), 1).order, Order::kKill) << "now it is the second";
}

TEST(RankPolicy, TheEndOfTheStoreIsAFailure) {
  auto policy = restarting_policy(1);
  EXPECT_EQ(policy.on_store_ended(5, " on a", SIGKILL, kStart).order, Order::kSignal);
  EXPECT_THAT(policy.reason(), HasSubstr("the ranks' TCPStore (pid 5 on a) was killed by SIGKILL; stopped 2 ranks"));
  EXPECT_TRUE(notice_of_restart(policy));
}

TEST(RankPolicy, StopsForTheSignalsThatItIsToldTo) {
  RankPolicy policy({.num_ranks = 1, .stop_signals = {SIGUSR1}});
  policy.on_started(0, 10);
  EXPECT_EQ(policy.on_signal(SIGUSR2, kStart).order, Order::kForward);
  EXPECT_EQ(policy.on_signal(SIGUSR1, kStart).order, Order::kSignal);
}

TEST(RankPolicy, RestartsThatFollowProgressSayWhatTheyDo) {
  RankPolicy policy({.num_ranks = 2, .restarts = {3, 1000}});
  const auto fail_at = [&](std::optional<int64_t> step) {
    for (const int64_t rank : {0, 1}) policy.on_started(rank, 10 + static_cast<int>(rank));
    policy.on_exited({1, 11, exit_with(1)}, kStart);
    policy.on_exited({0, 10, SIGTERM}, kStart);
    for (const int64_t rank : {0, 1}) policy.on_report(rank, {.num_steps = step});
  };
  fail_at(812);
  EXPECT_EQ(notice_of_restart(policy),
            "yoke run: rank 1 (pid 11) exited with code 1; stopped the other rank; starting all ranks again, restart 1 "
            "(1 of 3 within 1000 steps, at step 812)");
  fail_at(std::nullopt);
  const auto later = policy.begin_again();
  ASSERT_TRUE(later);
  EXPECT_EQ(later->delay, seconds(1));
  EXPECT_EQ(later->notice,
            "yoke run: rank 1 (pid 11) exited with code 1; stopped the other rank; starting all ranks again in 1.0 s, "
            "restart 2 (2 of 3 within 1000 steps, at step 812): the ranks made no step this time, so the cause may lie "
            "outside of the program");
  fail_at(812);
  EXPECT_EQ(policy.begin_again().has_value(), false);
  EXPECT_EQ(policy.exit_code(), 1);
  EXPECT_EQ(policy.reason(),
            "yoke run: rank 1 (pid 11) exited with code 1; stopped the other rank; there is no restart, because rank 1 "
            "ended in the same way after step 812 before");
}

}  // namespace
}  // namespace yoke::launch

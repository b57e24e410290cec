#include "yoke/launch/job/restart_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::launch {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

/// Rank 1 of two has failed with `status`, after so many steps of both.
FailedAttempt after(int64_t num_steps, int status = 9) {
  return {.rank = 1, .wait_status = status, .steps = {{0, num_steps}, {1, num_steps}}};
}
const FailedAttempt kWithoutStep{.rank = 1, .wait_status = 256};

TEST(RestartLimit, IsWrittenInTwoWays) {
  EXPECT_EQ(parse_restart_limit("3"), (RestartLimit{3, 0}));
  for (const auto* text : {"3/1000steps", "3/1000step", "3/1000"}) {
    EXPECT_EQ(parse_restart_limit(text), (RestartLimit{3, 1000})) << text;
  }
  for (const auto* text : {"3", "3/1000steps"}) EXPECT_EQ(to_text(*parse_restart_limit(text)), text);
  for (const auto* text :
       {"", "x", "-1", "3/", "/1000", "3/0steps", "3/steps", "3/1000 steps", "3/1000epochs", "1000001"}) {
    EXPECT_EQ(parse_restart_limit(text), std::nullopt) << text;
  }
  EXPECT_EQ(describe_restart(2, {3, 0}), "restart 2 of 3");
  EXPECT_EQ(describe_restart(5, {3, 1000}), "restart 5");
}

TEST(RestartRule, WithoutStepsIsTorchruns) {
  RestartRule rule({2, 0});
  EXPECT_TRUE(rule.judge(kWithoutStep).restarts);
  EXPECT_TRUE(rule.judge(kWithoutStep).restarts);
  const auto last = rule.judge(after(5));
  EXPECT_FALSE(last.restarts);
  EXPECT_EQ(last.why, "");
  EXPECT_EQ(rule.num_restarts(), 2);
}

TEST(RestartRule, NothingStartsAgainThatHasNeverMadeAStep) {
  RestartRule rule({3, 1000});
  const auto verdict = rule.judge(kWithoutStep);
  EXPECT_FALSE(verdict.restarts);
  EXPECT_THAT(verdict.why, HasSubstr("no rank has reported a step"));
}

TEST(RestartRule, ProgressRefillsTheBudget) {
  RestartRule rule({2, 1000});
  for (int64_t step = 600; step < 60'000; step += 600) {
    ASSERT_TRUE(rule.judge(after(step)).restarts) << step;
  }
  EXPECT_EQ(rule.num_restarts(), 99);
  RestartRule slow({2, 1000});
  EXPECT_TRUE(slow.judge(after(10)).restarts);
  EXPECT_TRUE(slow.judge(after(500)).restarts);
  const auto verdict = slow.judge(after(1009));
  EXPECT_FALSE(verdict.restarts);
  EXPECT_EQ(verdict.why, "there is no restart, because the limit of 2 within 1000 steps is reached at step 1009");
}

// Steps that are repeated from a checkpoint are no progress.
TEST(RestartRule, RepeatedStepsAreNoProgress) {
  RestartRule rule({2, 1000});
  EXPECT_TRUE(rule.judge(after(900)).restarts);
  EXPECT_TRUE(rule.judge(after(800)).restarts);
  EXPECT_FALSE(rule.judge(after(850)).restarts);
}

TEST(RestartRule, TheSameFailureTwiceIsTheProgramsOwn) {
  RestartRule rule({5, 1000});
  EXPECT_TRUE(rule.judge(after(812, 256)).restarts);
  EXPECT_TRUE(rule.judge(after(812, 9)).restarts) << "another way to end";
  EXPECT_TRUE(rule.judge({.rank = 0, .wait_status = 256, .steps = {{0, 812}, {1, 812}}}).restarts) << "another rank";
  EXPECT_TRUE(rule.judge({.steps = {{0, 812}, {1, 812}}}).restarts) << "a host was lost";
  const auto verdict = rule.judge(after(812, 256));
  EXPECT_FALSE(verdict.restarts);
  EXPECT_EQ(verdict.why, "there is no restart, because rank 1 ended in the same way after step 812 before");
}

// A loop that reports on rank 0 alone.
TEST(RestartRule, ARankThatReportsNothingIsWhereTheOthersAre) {
  RestartRule rule({5, 1000});
  const FailedAttempt silent{.rank = 1, .wait_status = 256, .steps = {{0, 100}}};
  EXPECT_TRUE(rule.judge(silent).restarts);
  EXPECT_FALSE(rule.judge(silent).restarts);
}

TEST(RestartRule, WhatLiesOutsideIsTriedAgainLaterAndLater) {
  RestartRule rule({10, 1000});
  EXPECT_EQ(rule.judge(after(5)).delay, seconds(0));
  for (const int64_t delay : {1, 2, 4, 8, 16, 32, 60, 60}) {
    const auto verdict = rule.judge(kWithoutStep);
    ASSERT_TRUE(verdict.restarts);
    EXPECT_EQ(verdict.delay, seconds(delay));
    EXPECT_THAT(verdict.why, HasSubstr("outside of the program"));
  }
  EXPECT_EQ(rule.judge(after(2000)).delay, seconds(0));
  EXPECT_EQ(rule.judge(kWithoutStep).delay, seconds(1));
}

TEST(RestartRule, ZeroIsNone) {
  RestartRule rule({0, 1000});
  EXPECT_FALSE(rule.may_restart());
  EXPECT_FALSE(rule.judge(after(5)).restarts);
}

}  // namespace
}  // namespace yoke::launch

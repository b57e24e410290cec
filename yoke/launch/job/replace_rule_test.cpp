#include "yoke/launch/job/replace_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace yoke::launch {
namespace {

constexpr int kExitWithOne = 1 << 8;  // in the form of wait(2), as the signals

TEST(ReplaceRule, ReplacesKilledRanksUpToTheLimit) {
  ReplaceRule rule(2);
  for (const int64_t number : {1, 2}) {
    EXPECT_TRUE(rule.judge({.rank = 3, .wait_status = SIGKILL, .step = 7}).replaces);
    EXPECT_EQ(rule.num_replaced(), number);
  }
  const auto third = rule.judge({.rank = 3, .wait_status = SIGKILL, .step = 7});
  EXPECT_FALSE(third.replaces);
  EXPECT_EQ(third.why, "2 replacements were made already");
}

TEST(ReplaceRule, DoesNothingUnlessAskedFor) {
  ReplaceRule rule(0);
  const auto verdict = rule.judge({.wait_status = SIGKILL});
  EXPECT_FALSE(verdict.replaces);
  EXPECT_EQ(verdict.why, "");
}

TEST(ReplaceRule, EachRankOfALostHostCounts) {
  ReplaceRule rule(5);
  EXPECT_TRUE(rule.judge(HostLoss{.num_ranks = 2}).replaces);
  EXPECT_TRUE(rule.judge({.rank = 3, .wait_status = SIGKILL, .step = 7}).replaces);
  EXPECT_EQ(rule.num_replaced(), 3);
  EXPECT_TRUE(rule.judge(HostLoss{.num_ranks = 2}).replaces);
  EXPECT_EQ(rule.judge(HostLoss{.num_ranks = 2}).why, "5 replacements were made already");

  const auto why_not = [](const HostLoss& loss) {
    ReplaceRule fresh(3);
    const auto verdict = fresh.judge(loss);
    EXPECT_FALSE(verdict.replaces);
    EXPECT_EQ(fresh.num_replaced(), 0);
    return verdict.why;
  };
  EXPECT_EQ(why_not({.num_ranks = 4}), "only 3 of 3 replacements are left");
  EXPECT_THAT(why_not({.num_ranks = 1, .keep_state = false}), testing::HasSubstr("they kept no state"));
  EXPECT_THAT(why_not({.num_ranks = 1, .has_survivors = false}), testing::HasSubstr("no other rank runs"));
  EXPECT_THAT(why_not({.num_ranks = 1, .some_have_left = true}), testing::HasSubstr("ended with status 0"));
}

TEST(ReplaceRule, ARankThatFailsByItselfIsNotReplaced) {
  ReplaceRule rule(2);
  const auto verdict = rule.judge({.wait_status = kExitWithOne});
  EXPECT_FALSE(verdict.replaces);
  EXPECT_EQ(verdict.why, "") << "it is as without --replace";
}

TEST(ReplaceRule, TheSameFaultAtTheSameStepIsNotRepeated) {
  ReplaceRule rule(9);
  EXPECT_TRUE(rule.judge({.rank = 1, .wait_status = SIGSEGV, .step = 5}).replaces);
  EXPECT_TRUE(rule.judge({.rank = 1, .wait_status = SIGSEGV, .step = 6}).replaces);
  EXPECT_TRUE(rule.judge({.rank = 2, .wait_status = SIGSEGV, .step = 5}).replaces);
  EXPECT_TRUE(rule.judge({.rank = 1, .wait_status = SIGBUS, .step = 5}).replaces);
  const auto again = rule.judge({.rank = 1, .wait_status = SIGSEGV, .step = 5});
  EXPECT_FALSE(again.replaces);
  EXPECT_EQ(again.why, "it ended in the same way after step 5 before");
  EXPECT_EQ(rule.num_replaced(), 4);
}

TEST(ReplaceRule, ARankThatHasKeptNoStateIsNotReplaced) {
  ReplaceRule rule(9);
  EXPECT_THAT(rule.judge({.wait_status = SIGKILL}).why, testing::HasSubstr("kept no state"));
  EXPECT_TRUE(rule.judge({.wait_status = SIGKILL, .step = 0}).replaces);
}

TEST(ReplaceRule, ARankWithoutPartnersIsNotReplaced) {
  ReplaceRule rule(9);
  EXPECT_EQ(rule.judge({.wait_status = SIGKILL, .has_survivors = false}).why,
            "no other rank runs, from which it could have the state");
  EXPECT_EQ(rule.judge({.wait_status = SIGKILL, .some_have_left = true}).why, "another rank has ended with status 0");
}

}  // namespace
}  // namespace yoke::launch

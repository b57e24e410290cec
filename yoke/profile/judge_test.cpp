#include "yoke/profile/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::profile {
namespace {

using testing::HasSubstr;

Step step_of(int64_t number, Cause cause, int64_t lost_ns) {
  Step step{.number = number, .length_ns = 100};
  step.lost_ns[static_cast<size_t>(cause)] = lost_ns;
  return step;
}

Step step_with(int64_t number, Collective collective) {
  return {.number = number, .length_ns = 100, .collectives = {collective}};
}

std::string bottleneck_of(const Report& report) {
  return report.bottleneck ? std::string(rule_of(report.bottleneck->cause).name) : "none";
}

double ceiling_of(const Report& report, Cause cause) {
  for (const auto& finding : report.findings) {
    if (finding.cause == cause) return finding.ceiling_percent;
  }
  return 0;
}

/// Makes the account of a rank whose step i loses lost_ns[i] to the loader.
RankAccount loading(int64_t rank, const std::vector<int64_t>& lost_ns) {
  RankAccount account{.rank = rank};
  for (const auto lost : lost_ns)
    account.steps.push_back(step_of(std::ssize(account.steps), Cause::kDataLoading, lost));
  return account;
}

TEST(Judge, RanksThatTakeTurnsAtBeingLateWaitBecauseTheyCommunicate) {
  const Collective waits{1, 50, 50}, is_late{1, 10, 10};
  const auto report = judge({{.rank = 0, .steps = {step_with(0, waits), step_with(1, is_late)}},
                             {.rank = 1, .steps = {step_with(0, is_late), step_with(1, waits)}}});
  EXPECT_DOUBLE_EQ(ceiling_of(report, Cause::kCommunication), 10 + 20);
  EXPECT_DOUBLE_EQ(ceiling_of(report, Cause::kSkew), 40);
  EXPECT_FALSE(report.straggler);
}

TEST(Judge, ARankThatIsAlwaysLateIsNoneOfTheCommunication) {
  const Collective waits{1, 50, 50}, is_late{1, 10, 10};
  const auto report = judge({{.rank = 3, .steps = {step_with(0, waits), step_with(1, waits)}},
                             {.rank = 8, .steps = {step_with(0, is_late), step_with(1, is_late)}}});
  EXPECT_DOUBLE_EQ(ceiling_of(report, Cause::kCommunication), 10);
  EXPECT_EQ(bottleneck_of(report), "skew");
  ASSERT_TRUE(report.straggler);
  EXPECT_EQ(report.straggler->rank, 8);
  EXPECT_EQ(report.straggler->late_percent, 100);
}

TEST(Judge, WhatMostRanksHaveInCommonIsACause) {
  EXPECT_EQ(bottleneck_of(judge({loading(0, {30, 30}), loading(1, {40, 40}), loading(2, {0, 0})})), "data_loading");
  EXPECT_EQ(bottleneck_of(judge({loading(0, {0, 0}), loading(1, {40, 40}), loading(2, {0, 0})})), "none");
}

TEST(Judge, OneStepOfSeveralIsAnAccident) {
  const auto one = judge({loading(0, {90, 0, 0, 0})});
  EXPECT_EQ(bottleneck_of(one), "none");
  // A loader with as many workers as there are steps stalls in one of these steps, so the answer "none" is uncertain.
  EXPECT_EQ(one.confidence, Confidence::kLow);
  ASSERT_FALSE(one.notes.empty());
  EXPECT_THAT(one.notes,
              testing::Contains(testing::HasSubstr("takes 22 % of all steps together, but only 1 of 4 steps")));
  const auto some = judge({loading(0, {90, 90, 0, 0, 0})});
  EXPECT_EQ(bottleneck_of(some), "data_loading");
  EXPECT_EQ(some.confidence, Confidence::kLow);
  EXPECT_EQ(judge({loading(0, {90, 90, 90, 90, 0})}).confidence, Confidence::kHigh);
  EXPECT_EQ(judge({loading(0, {90})}).confidence, Confidence::kMedium);
}

TEST(Judge, IsNotCertainOfNothingWhereMostIsUnexplained) {
  auto account = loading(0, {0, 0, 0, 0, 0, 0});
  EXPECT_EQ(judge({account}).confidence, Confidence::kHigh);
  for (auto& step : account.steps) step.unexplained_ns = 60;
  EXPECT_EQ(judge({account}).confidence, Confidence::kLow);
}

TEST(Judge, NamesWhatIsAtTheThreshold) {
  EXPECT_EQ(bottleneck_of(judge({loading(0, {5, 5, 5})})), "data_loading");
  EXPECT_EQ(bottleneck_of(judge({loading(0, {4, 4, 4})})), "none");
}

TEST(Judge, SaysThatRanksAreMissing) {
  auto one = loading(0, {0, 0, 0});
  one.world_size = 8;
  const auto report = judge({one});
  EXPECT_EQ(report.confidence, Confidence::kMedium);
  EXPECT_THAT(report.notes, testing::Contains(HasSubstr("1 of 8 ranks")));
}

TEST(Judge, EveryCauseHasAReasonAndAdvice) {
  for (size_t i = 0; i < kNumCauses; ++i) {
    const auto cause = static_cast<Cause>(i);
    RankAccount account;
    for (int64_t number = 0; number < 3; ++number) account.steps.push_back(step_of(number, cause, 90));
    const auto& rule = rule_of(cause);
    for (const auto sentence : {rule.reason, rule.host_reason, rule.advice}) EXPECT_TRUE(sentence.ends_with('.'));
    if (cause == Cause::kCommunication || cause == Cause::kSkew) continue;  // these two are computed from collectives
    const auto report = judge({account});
    EXPECT_EQ(bottleneck_of(report), rule.name);
    EXPECT_DOUBLE_EQ(report.bottleneck->ceiling_percent, 90);
    EXPECT_GE(report.evidence.size(), 2);
  }
}

}  // namespace
}  // namespace yoke::profile

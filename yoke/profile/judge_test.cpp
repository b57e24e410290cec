#include "yoke/profile/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/support/message_of.h"

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

TEST(Judge, PhasesTellWaitingFromCommunicationAndHaveTheSpreadOfSteps) {
  const auto rank_of = [](int64_t rank, int64_t exposed_ns) {
    RankAccount account{.rank = rank, .operation_ns = {{"aten::mm", 3'000'000 * (rank + 1)}, {"aten::add", 3'000}}};
    for (int64_t i = 0; i < 3; ++i) {
      auto step = step_with(i, {1, exposed_ns, exposed_ns});
      step.length_ns = 100 + 30 * i;
      step.phase_ns[static_cast<size_t>(Phase::kCommunication)] = exposed_ns;
      account.steps.push_back(step);
    }
    return account;
  };
  const auto report = judge({rank_of(0, 50), rank_of(1, 10)});
  const auto ns_of = [&](size_t rank, Phase phase) {
    return report.ranks[rank].phases[static_cast<size_t>(phase)].ms * 1e6;
  };
  EXPECT_NEAR(ns_of(0, Phase::kCommunication), 10, 1e-9);
  EXPECT_NEAR(ns_of(0, Phase::kWaiting), 40, 1e-9);
  EXPECT_NEAR(ns_of(1, Phase::kCommunication), 10, 1e-9);
  EXPECT_NEAR(ns_of(1, Phase::kWaiting), 0, 1e-9);
  EXPECT_NEAR(report.ranks[0].step.ms * 1e6, 130, 1e-9);
  EXPECT_NEAR(report.ranks[0].step.error_ms.value() * 1e6, 30 / std::sqrt(3), 1e-9);
  EXPECT_EQ(report.operations, (std::vector<OperationTime>{{"aten::mm", 1.5}, {"aten::add", 0.001}}));
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

TEST(Judge, SaysWhatTheLateRankDoesForLonger) {
  const auto rank_of = [](int64_t rank, int64_t computing_ms, int64_t collective_ns) {
    RankAccount account{.rank = rank};
    for (int64_t number = 0; number < 3; ++number) {
      account.steps.push_back({.number = number,
                               .length_ns = 10'000'000,
                               .collectives = {{1, collective_ns, collective_ns}},
                               .computing_ns = computing_ms * 1'000'000});
    }
    return account;
  };
  const auto report = judge({rank_of(0, 4, 5'000'000), rank_of(1, 8, 1'000'000), rank_of(2, 2, 6'000'000)});
  ASSERT_TRUE(report.straggler);
  EXPECT_EQ(report.straggler->rank, 1);
  EXPECT_EQ(report.straggler->why, "it computes for 5.0 ms a step longer than the others") << "8 - (4 + 2) / 2";
  EXPECT_DOUBLE_EQ(report.ranks[0].waiting_percent, 40);
  EXPECT_DOUBLE_EQ(report.ranks[0].communicating_percent, 10);
}

TEST(Judge, SaysThatTheLoadersOfTheOthersMayBeAsSlowAsThatOfTheLateRank) {
  const auto rank_of = [](int64_t rank, int64_t loading_ms, int64_t collective_ns) {
    RankAccount account{.rank = rank};
    for (int64_t number = 0; number < 3; ++number) {
      auto step = step_of(number, Cause::kDataLoading, loading_ms * 1'000'000);
      step.length_ns = 10'000'000 << number;
      step.collectives = {{1, collective_ns, collective_ns}};
      account.steps.push_back(step);
    }
    return account;
  };
  const auto report = judge({rank_of(0, 0, 9'000'000), rank_of(1, 8, 1'000'000)});
  ASSERT_TRUE(report.straggler);
  EXPECT_EQ(report.straggler->why, "it loads data for 8.0 ms a step longer than the others");
  EXPECT_THAT(report.evidence.back(), HasSubstr("a faster rank 1 alone saves nothing"));
  const auto spread = report.ranks[0].spread.value();
  EXPECT_NEAR(spread.median_ms, 20, 1e-9);
  EXPECT_EQ(spread.num_long, 1);
  EXPECT_EQ(spread.num_parts, 3);
}

TEST(Judge, EvidenceHasTheFiguresOfTheFirstRank) {
  const auto evidence_of = [](Cause cause, const std::function<void(RankAccount&)>& change) {
    RankAccount account{.rank = 2, .has_device = true};
    for (int64_t number = 0; number < 4; ++number) {
      account.steps.push_back(step_of(number, cause, 90));
      account.steps.back().num_syncs = number < 2 ? 3 : 5;
      account.steps.back().num_operations = 100 * number;
    }
    change(account);
    const auto evidence = judge({account}).evidence;
    return evidence.empty() ? "none" : evidence.back();
  };
  const auto nothing = [](RankAccount&) {};
  EXPECT_EQ(evidence_of(Cause::kHostSync, nothing), "The host of rank 2 waits 4 times a step.");
  EXPECT_EQ(evidence_of(Cause::kSmallOperations, nothing), "A step of rank 2 has 150 kernels.");
  EXPECT_EQ(evidence_of(Cause::kSmallOperations, [](RankAccount& account) { account.has_device = false; }),
            "A step of rank 2 has 150 operations.");
  EXPECT_EQ(evidence_of(Cause::kDeviceCopy, [](RankAccount& account) { account.pageable_share = 0.714; }),
            "71 % of the time of copies is from or to memory that is not pinned.");
  EXPECT_EQ(
      evidence_of(Cause::kThreads, [](RankAccount& account) { account.host = {.num_threads = 2, .num_cpus = 8}; }),
      "The program computes with 2 of 8 processors.");
  const auto precision = evidence_of(Cause::kPrecision, [](RankAccount& account) {
    account.largest_part[static_cast<size_t>(Cause::kPrecision)] = "\x1b[1m" + std::string(200, 'k');
  });
  EXPECT_THAT(precision, testing::StartsWith("The largest part of it on rank 2 is "));
  EXPECT_THAT(precision, testing::AllOf(testing::Not(HasSubstr("\x1b")), HasSubstr(std::string(60, 'k')),
                                        testing::Not(HasSubstr(std::string(80, 'k')))));
}

TEST(Judge, SaysWhatTheTracesLack) {
  auto first = loading(0, {0, 0, 0}), second = loading(1, {0});
  first.has_steps = true;
  second.steps[0].number = 9;
  second.path = "rank1.json";
  second.num_without_duration = 5;
  second.is_truncated = true;
  second.steps[0].unexplained_ns = 20;
  EXPECT_THAT(
      judge({first, second}).notes,
      testing::ElementsAre(HasSubstr("No step is in the traces of all ranks"),
                           HasSubstr("rank1.json marks no steps (call profiler.step() after each), so all of it"),
                           "rank1.json: 5 events without a usable time were left out.",
                           "rank1.json ends in the middle; the events before count.",
                           HasSubstr("Rank 1 spends 20 % of the step in code")));
  first.host.has_operations = 0;
  EXPECT_THAT(judge({first}).notes, testing::ElementsAre(HasSubstr("annotations only")));
}

TEST(Judge, TracesOfOneRankAreJoinedIfTheirStepsDiffer) {
  auto later = loading(4, {50, 50});
  for (auto& step : later.steps) step.number += 10;
  later.num_without_duration = 2;
  later.is_truncated = true;
  const auto joined = judge({loading(4, {10, 10}), later});
  ASSERT_EQ(joined.ranks.size(), 1u);
  EXPECT_EQ(joined.ranks[0].num_steps, 4);
  EXPECT_DOUBLE_EQ(ceiling_of(joined, Cause::kDataLoading), (50 + 50 + 10 + 10) / 4.0);
  EXPECT_THAT(joined.notes, testing::Contains(HasSubstr("2 events without a usable time")));
  EXPECT_THAT(joined.notes, testing::Contains(HasSubstr("ends in the middle")));
  later.steps[1].number = 0;
  later.path = "b.json";
  EXPECT_THAT(test::message_of([&] {
                judge({loading(4, {10, 10}), later});
              }),
              HasSubstr(" and b.json both have step 0 of rank 4; give the traces of one run only"));
  EXPECT_EQ(test::message_of([] { judge({}); }), "there is no trace to judge");
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

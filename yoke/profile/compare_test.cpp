#include "yoke/profile/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/profile/report.h"

namespace yoke::profile {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr int64_t kWidth = 160;

/// Ranks whose steps take 40 ms: 10 in forward, 20 in backward, 10 in communication.
Report training(size_t num_ranks = 1, int64_t num_steps = 6, double error_ms = 0.1) {
  Report report{.world_size = static_cast<int64_t>(num_ranks)};
  for (size_t i = 0; i < num_ranks; ++i) {
    RankLine rank{.rank = static_cast<int64_t>(i), .num_steps = num_steps};
    const auto error = num_steps < kMinStepsForError ? std::nullopt : std::optional(error_ms);
    rank.step = {40, error};
    for (auto& phase : rank.phases) phase = {0, error};
    rank.phases[static_cast<size_t>(Phase::kForward)].ms = 10;
    rank.phases[static_cast<size_t>(Phase::kBackward)].ms = 20;
    rank.phases[static_cast<size_t>(Phase::kCommunication)].ms = 10;
    report.ranks.push_back(rank);
  }
  return report;
}

void add(RankLine& rank, Phase phase, double ms) {
  rank.phases[static_cast<size_t>(phase)].ms += ms;
  rank.step.ms += ms;
}

/// The others wait for `late`.
Report with_late_rank(Report report, size_t late, Phase phase, double ms) {
  for (size_t i = 0; i < report.ranks.size(); ++i) add(report.ranks[i], i == late ? phase : Phase::kWaiting, ms);
  return report;
}

std::string first_line(const Comparison& comparison) {
  const auto text = to_text(comparison, kWidth);
  return text.substr(0, text.find('\n'));
}

TEST(ProfileCompare, NamesThePhaseAndTheRankThatHasBecomeSlower) {
  const auto a = training(4), b = with_late_rank(a, 3, Phase::kBackward, 12.3);
  EXPECT_EQ(first_line(compare(a, b)),
            "B's step takes 12.3 ms longer than A's (+31 %): 12.3 ms in backward of rank 3.");
  EXPECT_EQ(first_line(compare(b, a)), "B's step takes 12.3 ms less than A's (-24 %): 12.3 ms in backward of rank 3.");
}

TEST(ProfileCompare, WhatAllRanksHaveIsOfNoRank) {
  const auto a = training(4);
  auto b = a;
  for (auto& rank : b.ranks) add(rank, Phase::kForward, 8);
  const auto comparison = compare(a, b);
  EXPECT_EQ(first_line(comparison), "B's step takes 8.00 ms longer than A's (+20 %): 8.00 ms in forward.");
  ASSERT_TRUE(comparison.cause);
  EXPECT_FALSE(comparison.cause->rank);
}

TEST(ProfileCompare, OfTwoRanksThatHaveBecomeSlowerNoneIsNamedAlone) {
  const auto a = training(4);
  auto b = with_late_rank(a, 1, Phase::kForward, 5);
  b.ranks[2].phases = b.ranks[1].phases;
  const auto comparison = compare(a, b);
  ASSERT_TRUE(comparison.cause);
  EXPECT_FALSE(comparison.cause->rank);
}

TEST(ProfileCompare, WithoutADifferenceThereIsNoCause) {
  const auto one_step = training(1, 1);
  const auto comparison = compare(one_step, one_step);
  EXPECT_EQ(first_line(comparison), "B's step takes as long as A's, 40.0 ms.");
  EXPECT_FALSE(comparison.cause);
}

TEST(ProfileCompare, SaysThatATraceEndsInTheMiddle) {
  const auto a = training(2);
  auto b = a;
  b.ranks[1].is_truncated = true;
  EXPECT_THAT(compare(a, b).notes, ElementsAre("B's trace of rank 1 ends in the middle; the events before count."));
}

TEST(ProfileCompare, WaitingIsNamedOnlyIfNothingElseExplainsIt) {
  const auto a = training(2);
  auto b = a;
  for (auto& rank : b.ranks) add(rank, Phase::kWaiting, 8);
  EXPECT_THAT(first_line(compare(a, b)), HasSubstr("8.00 ms in waiting for other ranks."));
  add(b.ranks[0], Phase::kLoading, 3);
  add(b.ranks[1], Phase::kLoading, 3);
  EXPECT_THAT(first_line(compare(a, b)), HasSubstr("3.00 ms in the data loader."));
}

TEST(ProfileCompare, ADifferenceWithinTheNoiseIsNoDifference) {
  const auto a = training(1, 6, 1);
  auto b = a;
  add(b.ranks[0], Phase::kForward, 4);  // noise: 3 * sqrt(2) = 4.24
  EXPECT_EQ(first_line(compare(a, b)),
            "B's step takes as long as A's: 44.0 ms and 40.0 ms differ by less than what is noise in their steps (4.24 "
            "ms).");
  EXPECT_THAT(to_text(compare(a, b), kWidth), testing::ContainsRegex("forward +10.00 +14.00 +.4.00 +4.24 +noise"));
  EXPECT_FALSE(compare(a, b).cause);
  auto moved = a;
  add(moved.ranks[0], Phase::kForward, 9);
  add(moved.ranks[0], Phase::kBackward, -8);
  EXPECT_THAT(first_line(compare(a, moved)),
              AllOf(StartsWith("B's step takes as long as A's"),
                    HasSubstr(". But phases differ, in ms: +9.00 in forward, -8.00 in backward.")));
  add(b.ranks[0], Phase::kForward, 1);
  EXPECT_THAT(first_line(compare(a, b)), HasSubstr("5.00 ms longer than A's (+12 %): 5.00 ms in forward."));
  EXPECT_THAT(first_line(compare(a, a)), StartsWith("B's step takes as long as A's"));
}

TEST(ProfileCompare, SaysSoIfAFewLongStepsHaveTheDifference) {
  auto a = training(2, 160, 1), b = a;
  for (auto& rank : a.ranks) rank.spread = {.median_ms = 40, .num_long = 0, .num_parts = 20};
  for (auto& rank : b.ranks) {
    rank.spread = {.median_ms = 41, .num_long = 3, .num_parts = 20};
    add(rank, Phase::kRest, 27);
    rank.step.error_ms = 10;
  }
  a.is_of_run = b.is_of_run = true;
  EXPECT_EQ(
      first_line(compare(a, b)),
      "B's step takes longer than A's on average, 67.0 ms against 40.0 ms (+68 %), by a few long steps: 3 of 20 of "
      "B's windows of 8 steps take 1.5 times the median or longer, and the medians are 41.0 ms and 40.0 ms.");
  EXPECT_THAT(first_line(compare(b, a)), HasSubstr("(-40 %), by a few long steps: 3 of 20 of A's windows of 8 steps"));
  for (auto& rank : b.ranks) rank.spread->median_ms = 60;
  EXPECT_THAT(first_line(compare(a, b)),
              HasSubstr("(+68 %), but steps vary so much that this may be noise (30.1 ms): record more"));
  for (auto& rank : b.ranks) {
    rank.spread->median_ms = 41;
    rank.step.error_ms = 1;
  }
  EXPECT_EQ(
      first_line(compare(a, b)),
      "B's step takes 27.0 ms longer than A's (+68 %): 27.0 ms after the optimizer's step, as in an evaluation, a "
      "checkpoint or output.");
  EXPECT_THAT(compare(a, b).notes, ElementsAre(StartsWith("A few long steps have the difference: 3 of 20")));
}

TEST(ProfileCompare, SaysThatTheLoadersOfTheOthersRunAhead) {
  const auto a = training(3);
  EXPECT_THAT(compare(a, with_late_rank(a, 1, Phase::kLoading, 5)).notes, ElementsAre(HasSubstr("may be as slow")));
}

TEST(ProfileCompare, ARankThatDiffersByNoiseIsNotNamed) {
  const auto a = training(3, 6, 1);
  auto b = a;
  for (auto& rank : b.ranks) add(rank, Phase::kForward, 6);
  add(b.ranks[1], Phase::kBackward, 4);
  for (const auto& phase : compare(a, b).phases) EXPECT_FALSE(phase.rank) << names_of(phase.phase).name;
}

// A Run has nothing between its phases, and a trace has: whatever they say of a phase would be wrong.
TEST(ProfileCompare, ARunAndATraceAreComparedByTheWholeStepAlone) {
  const auto a = training(2);
  auto b = with_late_rank(a, 1, Phase::kForward, 5);
  for (const bool is_device : {false, true}) {
    b.is_of_run = !is_device;
    for (auto& rank : b.ranks) rank.has_device = is_device;
    const auto comparison = compare(a, b);
    EXPECT_EQ(first_line(comparison), "B's step takes 5.00 ms longer than A's (+12 %).");
    EXPECT_THAT(to_text(comparison, kWidth), Not(testing::ContainsRegex("\nforward")));
    EXPECT_THAT(comparison.notes, ElementsAre(HasSubstr("ompare")));
    EXPECT_TRUE(to_json(comparison)["cause"].is_null());
    EXPECT_TRUE(to_json(comparison)["phases"].empty());
  }
}

TEST(ProfileCompare, FewStepsHaveNoKnownNoise) {
  const auto a = training(1, 2);
  auto b = training(1, 9);
  add(b.ranks[0], Phase::kForward, 0.1);
  const auto comparison = compare(a, b);
  EXPECT_THAT(first_line(comparison), StartsWith("B's step takes 0.10 ms longer"));
  EXPECT_THAT(comparison.notes, ElementsAre("A has 2 steps and B 9: all times are means of a step.",
                                            HasSubstr("With fewer than 3 steps, it is not known")));
  EXPECT_TRUE(to_json(comparison)["step"]["noise_ms"].is_null());
}

TEST(ProfileCompare, OtherRanksAreComparedAsMeans) {
  auto b = with_late_rank(training(4), 3, Phase::kBackward, 12);
  b.world_size = 8;
  const auto comparison = compare(training(2), b);
  EXPECT_THAT(comparison.notes, ElementsAre(HasSubstr("A has 2 ranks and B 4"), HasSubstr("B has 4 of 8 ranks")));
  EXPECT_EQ(first_line(comparison), "B's step takes 12.0 ms longer than A's (+30 %): 3.00 ms in backward.");
  for (const auto& phase : comparison.phases) EXPECT_FALSE(phase.rank);
}

TEST(ProfileCompare, SharesAreOfTheStepsDifference) {
  const auto a = training();
  auto b = a;
  add(b.ranks[0], Phase::kForward, 9);
  add(b.ranks[0], Phase::kBackward, -3);
  const auto json = to_json(compare(a, b));
  EXPECT_EQ(json["step"]["difference_ms"], 6);
  ASSERT_EQ(json["phases"].size(), 3);  // the others take no time
  EXPECT_EQ(json["phases"][0]["phase"], "forward");
  EXPECT_EQ(json["phases"][0]["share_percent"], 150);
  EXPECT_EQ(json["phases"][1]["phase"], "backward");
  EXPECT_EQ(json["phases"][1]["share_percent"], -50);
  EXPECT_EQ(json["cause"]["phase"], "forward");
  EXPECT_TRUE(to_json(compare(a, a))["cause"].is_null());
}

TEST(ProfileCompare, ListsOperationsThatDiffer) {
  auto a = training(), b = a;
  a.operations = {{"aten::addmm", 20}, {"gone", 2}, {"same", 1}, {"little", 0.1}};
  b.operations = {{"aten::addmm", 14}, {"same", 1.01}, {"new\x1b[31m", 3}, {"little", 0.3}};
  const auto comparison = compare(a, b);
  std::vector<std::string> names;
  for (const auto& operation : comparison.operations) names.push_back(operation.name);
  EXPECT_THAT(names, ElementsAre("aten::addmm", "new\x1b[31m", "gone"));
  for (const auto& text : {to_text(comparison, kWidth), to_json(comparison).dump()}) {
    EXPECT_THAT(text, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\\u001b"))));
  }
}

TEST(ProfileCompare, OperationsOfOneSideAloneAreNotCompared) {
  auto a = training(), b = a;
  a.operations = {{"aten::addmm", 20}};
  EXPECT_THAT(compare(a, b).operations, IsEmpty());
  EXPECT_THAT(compare(b, a).operations, IsEmpty());
}

TEST(ProfileCompare, AnOperationThatAFullListLacksMayBeAsLongAsItsLast) {
  auto a = training(), b = a;
  for (size_t i = 0; i < Report::kNumOperations; ++i) a.operations.push_back({std::to_string(i), 5});
  b.operations = a.operations;
  b.operations[0] = {"new", 5.2};
  EXPECT_THAT(compare(a, b).operations, IsEmpty());
  b.operations[0] = {"new", 6};
  EXPECT_EQ(compare(a, b).operations.size(), 1);
}

TEST(ProfileCompare, AReportThatWasSavedGivesTheSame) {
  test::TemporaryFolder folder;
  auto a = training(3);
  a.operations = {{"aten::mm", 7}};
  for (auto& rank : a.ranks) rank.spread = {.median_ms = 40, .num_long = 0, .num_parts = 6};
  auto b = with_late_rank(a, 2, Phase::kForward, 5);
  for (auto& rank : b.ranks) rank.spread->num_long = 2;
  folder.write("a.json", to_json(a).dump());
  folder.write("b.json", to_json(b).dump(2));
  const auto read_a = read_report(folder.path("a.json")), read_b = read_report(folder.path("b.json"));
  ASSERT_TRUE(read_a && read_b);
  EXPECT_EQ(to_text(compare(*read_a, *read_b), kWidth), to_text(compare(a, b), kWidth));

  auto of_run = to_json(b);  // a Run's report has no phases of a device, and is in its folder
  for (auto& rank : of_run["ranks"]) rank["phases"].erase("device_copy");
  std::filesystem::create_directory(folder.path("run"));
  folder.write("run/profile.json", of_run.dump());
  const auto read_run = read_report(folder.path("run"));
  ASSERT_TRUE(read_run);
  EXPECT_EQ(to_text(compare(a, *read_run), kWidth), to_text(compare(a, b), kWidth));

  of_run["first_step"] = 1;
  folder.write("run/profile.json", of_run.dump());
  folder.write("run/rank0.json", "{}");
  const auto beside_traces = read_report(folder.path("run"));
  ASSERT_TRUE(beside_traces);
  EXPECT_THAT(compare(a, *beside_traces).notes,
              ElementsAre(HasSubstr("profile.json is compared"), StartsWith("Only B is of a train::Run")));
}

TEST(ProfileCompare, AnOlderReportIsRefusedAndAnotherFileIsNone) {
  test::TemporaryFolder folder;
  auto json = to_json(training());
  json["ranks"][0].erase("phases");
  folder.write("old.json", json.dump(2));
  folder.write("cut.json", to_json(training()).dump(2).substr(0, 200));
  folder.write("trace.json", R"({"traceEvents": []})");
  for (const auto* name : {"old.json", "cut.json"}) {
    EXPECT_THAT(test::message_of([&] { read_report(folder.path(name)); }, ErrorCode::kDataLoss),
                AllOf(HasSubstr(name), HasSubstr("record again")));
  }
  EXPECT_FALSE(read_report(folder.path("trace.json")));
  EXPECT_FALSE(read_report(folder.path("none.json")));
}

}  // namespace
}  // namespace yoke::profile

#include "yoke/profile/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace yoke::profile {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr int64_t kWidth = 160;

Report report_of_one(double ceiling_percent, int64_t num_steps) {
  const Finding finding{.cause = Cause::kDataLoading,
                        .ceiling_percent = ceiling_percent,
                        .ms_per_step = 12.346,
                        .num_steps = num_steps,
                        .num_steps_seen = 6};
  Report report{.findings = {finding}, .ranks = {{.rank = 3, .path = "/t/rank3.json", .num_steps = 6, .step_ms = 50}}};
  if (finding.is_named()) report.bottleneck = finding;
  return report;
}

TEST(ProfileReport, TheFirstSentenceIsTheAnswer) {
  EXPECT_THAT(
      to_text(report_of_one(24.6, 5), kWidth),
      StartsWith("Data loading limits this training: a fix saves at most 25 % of the step (confidence: high)."));
  auto report = report_of_one(24.6, 1);
  report.confidence = Confidence::kLow;
  EXPECT_THAT(
      to_text(report, kWidth),
      StartsWith("No bottleneck found (confidence: low). Data loading takes most, 25 % of the step; it is named "
                 "from 5 % on, if two steps have that.\n"));
  report.ranks[0].unexplained_percent = 49.9;
  EXPECT_THAT(to_text(report, kWidth), HasSubstr("Data loading takes most"));
  report.ranks.push_back({.rank = 4, .unexplained_percent = 50});
  EXPECT_THAT(to_text(report, kWidth), StartsWith("No bottleneck found (confidence: low), but 50 % of the step is in "
                                                  "code that the trace does not name"));
  EXPECT_THAT(to_text(Report{.confidence = Confidence::kMedium}, kWidth),
              StartsWith("No bottleneck found (confidence: medium).\n"));
}

TEST(ProfileReport, AdviceIsLastAndOnlyForABottleneck) {
  auto report = report_of_one(24.6, 5);
  report.evidence = {"Because of this."};
  report.notes = {"But note that."};
  const auto text = to_text(report, kWidth);
  EXPECT_THAT(text,
              AllOf(HasSubstr("\n\n  Because of this.\n\n"), HasSubstr("\n\n  But note that.\n\nNext: Give the")));
  EXPECT_TRUE(text.ends_with("decode them once.\n"));
  EXPECT_THAT(text, testing::ContainsRegex("data_loading +12\\.35 +24\\.6 % +5 % +5 of 6"));
  EXPECT_THAT(to_text(report_of_one(4, 5), kWidth), Not(HasSubstr("Next:")));
}

TEST(ProfileReport, NothingOfATraceReachesTheTerminal) {
  auto report = report_of_one(24.6, 5);
  report.evidence = {"a\x1b[31m\nb"};
  report.notes = {"\x1b[2J"};
  report.ranks[0].path = "/t/\x1b]0;x\a.json";
  for (const auto& text : {to_text(report, kWidth), to_json(report).dump()}) {
    EXPECT_THAT(text, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\\u001b")), Not(HasSubstr("31m\nb"))));
  }
}

TEST(ProfileReport, JsonHasEachMemberInAnyCase) {
  auto report = report_of_one(24.567, 5);
  report.straggler = Straggler{.rank = 3, .late_percent = 99.999, .why = "it computes"};
  const auto named = to_json(report), none = to_json(report_of_one(0.004, 0));
  EXPECT_EQ(named["bottleneck"], "data_loading");
  EXPECT_EQ(named["gain_ceiling_percent"], 24.57);
  EXPECT_EQ(named["causes"][0]["ms_per_step"], 12.35);
  EXPECT_EQ(named["causes"][0]["steps_above"], 5);
  EXPECT_EQ(named["ranks"][0]["trace"], "/t/rank3.json");
  EXPECT_EQ(named["straggler"]["late_percent"], 100.0);
  EXPECT_EQ(none["bottleneck"], "none");
  EXPECT_EQ(none["gain_ceiling_percent"], 0.0);
  EXPECT_EQ(none["causes"][0]["gain_ceiling_percent"], 0.0);
  EXPECT_EQ(none["advice"], "");
  EXPECT_FALSE(none.contains("straggler"));
  for (const auto& [key, value] : none.items()) EXPECT_EQ(value.type(), named[key].type()) << key;
}

}  // namespace
}  // namespace yoke::profile

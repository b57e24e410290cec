#include "yoke/tune/observation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace yoke::tune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RankSteps rank_with(int64_t num_steps) {
  RankSteps rank;
  rank.world_size = 2;
  for (int64_t step = 0; step < num_steps; ++step) rank.ends.push_back({step, 10.0 + 0.5 * static_cast<double>(step)});
  return rank;
}

TEST(TuneObservation, StepsAreThoseThatAllRanksHaveMade) {
  Observation seen;
  EXPECT_FALSE(seen.take({}, 5));
  EXPECT_FALSE(seen.take(std::vector{rank_with(4), rank_with(0)}, 5)) << "a rank has not begun";
  EXPECT_TRUE(seen.take(std::vector{rank_with(4), rank_with(7)}, 5));
  EXPECT_EQ(seen.num_steps, 4);
  EXPECT_EQ(seen.num_ranks, 2);
  EXPECT_EQ(seen.soak_seconds, 1.5);
  EXPECT_FALSE(seen.take(std::vector{rank_with(4), rank_with(7)}, 5)) << "nothing is new";
  EXPECT_TRUE(seen.take(std::vector{rank_with(4), rank_with(8)}, 5)) << "a rank goes on";
}

struct JudgeRow {
  const char* description;
  Observation seen;
  Outcome outcome;
  const char* reason;
};

TEST(TuneObservation, IsJudged) {
  const Pace pace{.step_seconds = 0.25, .spread_percent = 1, .num_steps = 40};
  const JudgeRow rows[] = {
      {"it was measured", {.pace = pace, .num_steps = 50}, Outcome::kOk, ""},
      {"and has ended well", {.pace = pace, .num_steps = 50, .status = 0}, Outcome::kOk, ""},
      {"yoke ended it", {.pace = pace, .is_stopped_before_oom = true}, Outcome::kOutOfMemory, "nearly used up"},
      {"the kernel ended it", {.pace = pace, .status = 128 + SIGKILL}, Outcome::kOutOfMemory, ""},
      {"its words say so", {.status = 1, .output = "std::bad_alloc"}, Outcome::kOutOfMemory, ""},
      {"it failed", {.pace = pace, .status = 3}, Outcome::kFailed, "status 3"},
      {"no file was written", {.is_unwritten = true}, Outcome::kFailed, "could not write step times into /steps"},
      {"it never stepped", {.is_without_progress = true}, Outcome::kFailed, "has stepped in 7 s (--timeout)"},
      {"it ended first", {.status = 0}, Outcome::kFailed, "has stepped before the program ended"},
      {"it hangs", {.num_steps = 9, .is_without_progress = true}, Outcome::kFailed, "no step ended for 7 s"},
      {"one step", {.num_steps = 1, .status = 0}, Outcome::kFailed, "ended after 1 step, which are too few"},
  };
  for (const auto& row : rows) {
    const auto run = judge({8, true, ""}, row.seen, {.host_bytes = 900, .timeout_s = 7, .folder = "/steps"});
    EXPECT_EQ(run.outcome, row.outcome) << row.description;
    EXPECT_THAT(run.reason, HasSubstr(row.reason)) << row.description;
    EXPECT_EQ(run.batch, 8);
    EXPECT_TRUE(run.has_worst_case);
    EXPECT_EQ(run.memory[0].limit_bytes, 900);
    EXPECT_EQ(run.step_seconds, row.seen.pace ? 0.25 : 0);
  }
}

class TuneCheck : public testing::Test {
 protected:
  /// What the check of an answer of 8 samples in 0.25 s adds to the warnings.
  std::vector<std::string> check(const Observation& seen, const Measurement& run) {
    report_.answer.chosen = Measurement{.batch = 8, .step_seconds = 0.25};
    report_.soak.reset();
    add_check(seen, run, 200, report_);
    return report_.answer.warnings;
  }

  Report report_{.options = {}, .measurements = {}, .answer = {}, .soak = {}};
};

TEST_F(TuneCheck, OfAnAnswerThatHoldsWarnsOfNothing) {
  EXPECT_THAT(check({.num_steps = 200, .soak_seconds = 50}, {.batch = 8, .step_seconds = 0.25}), IsEmpty());
  ASSERT_TRUE(report_.soak);
  EXPECT_EQ(report_.soak->num_steps, 200);
  EXPECT_EQ(report_.soak->seconds, 50);
  EXPECT_EQ(report_.soak->samples_per_second, 32);
}

TEST_F(TuneCheck, ThatFailsIsAWarningAndNoResult) {
  const Measurement run{.batch = 8, .outcome = Outcome::kFailed, .reason = "the program ended with status 3"};
  EXPECT_THAT(check({.num_steps = 90}, run),
              ElementsAre("the check of the answer failed after 90 steps: the program ended with status 3"));
  EXPECT_FALSE(report_.soak);
}

TEST_F(TuneCheck, TellsOfEarlyEndsSlowStepsAndGrowth) {
  Measurement run{.batch = 8, .step_seconds = 0.5};
  run.memory[0] = {.peak_bytes = 100 << 20, .limit_bytes = 110 << 20};
  EXPECT_THAT(check({.num_steps = 90, .growth_bytes_per_step = 1 << 20, .status = 0}, run),
              ElementsAre("the program ended after 90 of the 200 steps of --soak",
                          "memory grows by 1.0 MiB in each step, and would be used up after 10 more steps",
                          HasSubstr("the check of the answer gave 16 samples/s instead of 32,")));
}

}  // namespace
}  // namespace yoke::tune

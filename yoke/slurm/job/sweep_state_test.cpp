#include "yoke/slurm/job/sweep_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::slurm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(SlurmSweepState, ReadsTheFileOfATask) {
  EXPECT_EQ(parse_sweep_status("3 4131 2\n"), (SweepStatus{3, "4131", 2}));
  EXPECT_EQ(parse_sweep_status("0\n"), (SweepStatus{0, "", 0}));
  for (const auto* text : {"", "\n", "x 1 0"}) EXPECT_EQ(parse_sweep_status(text), std::nullopt) << text;
}

Job job_of_task(const std::string& state, int64_t num_restarts = 0, const std::string& nodes = "n1") {
  return {
      .number = 13, .array = 12, .array_task = "0", .state = state, .node_list = nodes, .num_restarts = num_restarts};
}

TEST(SlurmSweepState, IsThatOfTheLastRun) {
  const std::vector<std::string> one = {"12"}, again = {"12", "15"};
  const SweepStatus failed{3, "12", 0}, done{0, "12", 0};
  struct Row {
    const char* what;
    SweepEvidence evidence;
    std::string text;
    SweepEnd end;
  };
  const std::vector<Row> rows = {
      {"ended well", {.jobs = one, .status = done}, "done", SweepEnd::kDone},
      {"ended badly", {.jobs = one, .status = failed}, "failed (3)", SweepEnd::kFailed},
      {"the same, by Slurm",
       {.jobs = one, .status = failed, .task = job_of_task("FAILED")},
       "failed (3)",
       SweepEnd::kFailed},
      {"wrote its status, and is ending",
       {.jobs = one, .status = failed, .task = job_of_task("COMPLETING")},
       "failed (3)",
       SweepEnd::kFailed},
      {"was put back, and waits",
       {.jobs = one, .status = failed, .task = job_of_task("PENDING", 1, "")},
       "not ended",
       SweepEnd::kNotEnded},
      {"had succeeded, was put back, and waits",
       {.jobs = one, .status = done, .task = job_of_task("PENDING", 1, "")},
       "not ended",
       SweepEnd::kNotEnded},
      {"was put back, and its script begins",
       {.jobs = one, .status = failed, .task = job_of_task("RUNNING", 1)},
       "not ended",
       SweepEnd::kNotEnded},
      {"was put back, and wrote its status",
       {.jobs = one, .status = SweepStatus{0, "12", 1}, .task = job_of_task("RUNNING", 1)},
       "done",
       SweepEnd::kDone},
      {"was put back, and ran into its limit",
       {.jobs = one, .status = failed, .task = job_of_task("TIMEOUT", 1)},
       "failed (TIMEOUT)",
       SweepEnd::kTimeLimit},
      {"was submitted again, and waits",
       {.jobs = again, .status = failed, .task = job_of_task("PENDING", 0, "")},
       "not ended",
       SweepEnd::kNotEnded},
      {"was submitted again, and ended", {.jobs = again, .status = SweepStatus{0, "15", 0}}, "done", SweepEnd::kDone},
      {"was submitted again, and Slurm does not answer",
       {.jobs = again, .status = failed, .has_output = true},
       "not known",
       SweepEnd::kNotKnown},
      {"ended in a job that sweep.json does not know",
       {.jobs = one, .status = SweepStatus{0, "19", 0}},
       "done",
       SweepEnd::kDone},
      {"the kernel killed the program",
       {.jobs = one, .status = SweepStatus{137, "12", 0}, .task = job_of_task("OUT_OF_MEMORY")},
       "failed (OUT_OF_MEMORY)",
       SweepEnd::kOutOfMemory},
      {"the kernel killed a step",
       {.jobs = one, .status = SweepStatus{1, "12", 0}, .task = job_of_task("FAILED"), .is_out_of_memory = true},
       "failed (OUT_OF_MEMORY)",
       SweepEnd::kOutOfMemory},
      {"runs", {.jobs = one, .has_output = true, .task = job_of_task("RUNNING")}, "not ended", SweepEnd::kNotEnded},
      {"its status could not be written",
       {.jobs = one, .has_output = true, .task = job_of_task("COMPLETED")},
       "done",
       SweepEnd::kDone},
      {"was cancelled",
       {.jobs = one, .has_output = true, .task = job_of_task("CANCELLED")},
       "failed (CANCELLED)",
       SweepEnd::kFailed},
      {"was cancelled before",
       {.jobs = one, .task = job_of_task("CANCELLED", 0, "")},
       "never started (CANCELLED)",
       SweepEnd::kNeverStarted},
      {"Slurm has forgotten that", {.jobs = one, .is_answered = true}, "never started", SweepEnd::kNeverStarted},
      {"Slurm has forgotten how it ended",
       {.jobs = one, .has_output = true, .is_answered = true},
       "not known",
       SweepEnd::kNotKnown},
      {"Slurm does not answer", {.jobs = one}, "not known", SweepEnd::kNotKnown},
      {"its job is not known", {.jobs = {""}, .status = failed}, "failed (3)", SweepEnd::kFailed},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(state_of(row.evidence), (SweepState{row.end, row.text}))
        << row.what << ": " << state_of(row.evidence).text;
  }
}

TEST(SlurmSweepState, SaysWhichTasksRunAgain) {
  const SweepState done{SweepEnd::kDone, ""}, failed{SweepEnd::kFailed, ""}, never{SweepEnd::kNeverStarted, ""},
      runs{SweepEnd::kNotEnded, ""}, lost{SweepEnd::kNotKnown, ""};
  const Sweep sweep{.tasks = std::vector<SweepTask>(5), .job = "12", .options = {"-t5"}};
  EXPECT_THAT(plan_rerun(sweep, {done, failed, runs, never, lost}, {}),
              ElementsAre(SweepRerun{"", {1, 3, 4}, {"-t5"}}));
  EXPECT_THAT(plan_rerun(sweep, {done, failed, runs, done, done}, {.options = {"--mem=2G"}}),
              ElementsAre(SweepRerun{"", {1}, {"-t5", "--mem=2G"}}));
  EXPECT_THAT(plan_rerun(sweep, {done, runs, done, done, done}, {}), IsEmpty());
}

TEST(SlurmSweepState, GivesMoreToTasksThatRanOut) {
  const SweepState failed{SweepEnd::kFailed, ""}, memory{SweepEnd::kOutOfMemory, ""}, time{SweepEnd::kTimeLimit, ""};
  const Sweep sweep{.tasks = std::vector<SweepTask>(4),
                    .job = "12",
                    .options = {"--mem-per-cpu", "1G", "-t", "1:30"},
                    .reruns = {{"13", {3}, {"--mem=100", "--mem=200M"}}}};
  // Of equal options, sbatch takes the last one, and 1:30 is a minute and a half.
  EXPECT_THAT(plan_rerun(sweep, {failed, memory, time, memory}, {.growth = 1.5}),
              ElementsAre(SweepRerun{"", {0}, {"--mem-per-cpu", "1G", "-t", "1:30"}},
                          SweepRerun{"", {1}, {"--mem-per-cpu", "1G", "-t", "1:30", "--mem-per-cpu=1536M"}},
                          SweepRerun{"", {2}, {"--mem-per-cpu", "1G", "-t", "1:30", "--time=3"}},
                          SweepRerun{"", {3}, {"--mem=100", "--mem=200M", "--mem=300M"}}));
  EXPECT_THAT(test::message_of(
                  [&] {
                    plan_rerun(sweep, {failed, failed, failed, time}, {.growth = 2.0});
                  },
                  ErrorCode::kInvalidArgument),
              HasSubstr("task 3 ran out of time, but was submitted without --time"));
  EXPECT_THAT(plan_rerun(sweep, {failed, failed, failed, time}, {.options = {"-t9"}, .growth = 2.0})[1].options,
              ElementsAre("--mem=100", "--mem=200M", "-t9"));
  const Sweep whole{.tasks = std::vector<SweepTask>(1), .job = "12", .options = {"--mem=0"}};
  EXPECT_THAT(test::message_of([&] { plan_rerun(whole, {memory}, {.growth = 2.0}); }, ErrorCode::kInvalidArgument),
              HasSubstr("without an amount of --mem"));
}

}  // namespace
}  // namespace yoke::slurm

#include "yoke/slurm/job/job_file.h"

#include <gtest/gtest.h>

namespace yoke::slurm {
namespace {

TEST(SlurmJobFile, ARangeNamesTasksOfAnArray) {
  EXPECT_EQ(parse_job_range("7_[1-2]"), (JobRange{7, {1, 2}}));
  EXPECT_EQ(parse_job_range("7_[1,4-5%2]"), (JobRange{7, {1, 4, 5}}));
  EXPECT_EQ(parse_job_range("7_[6,0-4:2]"), (JobRange{7, {0, 2, 4, 6}}));
  EXPECT_EQ(parse_job_range("7_[2,1-3,1]"), (JobRange{7, {1, 2, 3}}));
  for (const auto* text : {"7", "7_1", "7_[]", "7_[a]", "x_[1]", "7_[1-2", "-7_[1]", "7_[1,..."}) {
    EXPECT_EQ(parse_job_range(text), std::nullopt) << text;
  }
  const JobRange range{7, {1, 2}};
  EXPECT_TRUE(range.contains({.number = 8, .array = 7, .array_task = "1"}));
  EXPECT_TRUE(range.contains({.number = 7, .array = 7, .array_task = "2-9%1"}));
  EXPECT_FALSE(range.contains({.number = 9, .array = 7, .array_task = "3"}));
  EXPECT_FALSE(range.contains({.number = 2}));
  EXPECT_FALSE(range.contains({.number = 2, .array = 6, .array_task = "1"}));
}

TEST(SlurmJobFile, AWordNamesJobsAndTasks) {
  using Targets = std::vector<JobTarget>;
  EXPECT_EQ(parse_job_targets("7"), (Targets{{{7, {}}, {}}}));
  EXPECT_EQ(parse_job_targets("7.0"), (Targets{{{7, {}}, {}}}));
  EXPECT_EQ(parse_job_targets("7_1,9+1"), (Targets{{{7, 1}, {}}, {{9, {}, 1}, {}}}));
  EXPECT_EQ(parse_job_targets("7_[1,3],5-6"),
            (Targets{{{7, {}}, JobRange{7, {1, 3}}}, {{5, {}}, {}, true}, {{6, {}}, {}, true}}));
  EXPECT_EQ(parse_job_targets("5-5"), (Targets{{{5, {}}, {}, true}}));
  for (const auto* text :
       {"", ",", "5,", "7-5", "0-3", "-3", "5-", "1-2000", "7_[1", "7_[]", "slurm-5.out", "5-7.out"}) {
    EXPECT_EQ(parse_job_targets(text), Targets{}) << text;
  }
  EXPECT_EQ(to_text(parse_job_targets("7_[3,1-2]").at(0)), "7_[1-3]");
  EXPECT_EQ(to_text(parse_job_targets("7_1").at(0)), "7_1");
}

TEST(SlurmJobFile, ANameMayMeanSeveralJobs) {
  using Names = std::vector<JobName>;
  EXPECT_EQ(jobs_in_name("logs/slurm-123.out"), (Names{{123, {}}}));
  EXPECT_EQ(jobs_in_name("train-123_4.log"), (Names{{123, 4}, {4, {}}, {123, {}}}));
  EXPECT_EQ(jobs_in_name("lr1e-3_seed9.out"), (Names{{3, {}}}));
  EXPECT_EQ(jobs_in_name("2026-11-24_8_run2.out"), (Names{{24, 8}, {8, {}}, {24, {}}, {11, {}}, {2026, {}}}));
  EXPECT_EQ(jobs_in_name("results.log"), Names{});
}

TEST(SlurmJobFile, AFileIsComparedWithTheOutputOfTheJob) {
  Job job{.id = "3", .number = 3, .out = "/w/slurm-3.out", .err = "/w/e.err", .folder = "/w"};
  const auto by_job = outputs_of(job, {});
  struct Row {
    const char* file;
    JobOutputs outputs;
    OutputMatch expected;
  };
  Account account;
  account.job = {.id = "3", .number = 3, .folder = "/w"};
  account.submit_line = "sbatch -N2 job.sh";
  const auto by_default = outputs_of(std::nullopt, {account});
  account.submit_line = "sbatch -o r-%j.log job.sh";
  const auto by_line = outputs_of(std::nullopt, {account});
  account.submit_line = "sbatch job.sh";
  account.job = {.id = "7_2", .number = 9, .array = 7, .array_task = "2", .folder = "/w"};
  const auto by_array = outputs_of(std::nullopt, {account});
  const std::vector<Row> rows = {
      {"/w/slurm-3.out", by_job, OutputMatch::kIsOutput},
      {"/w/e.err", by_job, OutputMatch::kIsOutput},
      {"/moved/slurm-3.out", by_job, OutputMatch::kUnknown},
      {"/w/lr1e-3_seed9.out", by_job, OutputMatch::kOther},
      {"/w/slurm-3.out", by_default, OutputMatch::kIsOutput},
      {"/w/lr1e-3.out", by_default, OutputMatch::kUnknown},
      {"/w/r-3.log", by_line, OutputMatch::kIsOutput},
      {"/w/slurm-3.out", by_line, OutputMatch::kOther},
      {"/w/slurm-7_2.out", by_array, OutputMatch::kIsOutput},
      {"/w/slurm-3.out", outputs_of({}, {}), OutputMatch::kUnknown},
  };
  for (const auto& row : rows) EXPECT_EQ(match_output(row.file, row.outputs), row.expected) << row.file;
}

}  // namespace
}  // namespace yoke::slurm

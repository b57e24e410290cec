#include "yoke/slurm/job/wait_for_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_slurm.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::slurm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(SlurmWaitForJob, KnowsHowFarTheTasksAre) {
  const auto task = [](const char* state, int exit_code = 0, int ended = 0, const char* reason = "") {
    Job job{.state = state, .reason = reason, .exit_code = exit_code};
    if (ended > 0) job.ended = Time(Seconds(ended));
    return job;
  };
  struct Row {
    const char* what;
    std::vector<Job> jobs;
    std::string state;
    std::optional<int> exit_status;
    bool never_starts = false;
  };
  const Row rows[] = {
      {"one runs", {task("RUNNING")}, "job 7 is RUNNING", {}},
      {"one waits", {task("PENDING"), task("RUNNING"), task("FAILED", 3, 9)}, "job 7 is RUNNING", {}},
      {"one can never start",
       {task("PENDING", 0, 0, "DependencyNeverSatisfied")},
       "job 7 is PENDING: a job that it depends on ended in another way than it asked for, so it never starts "
       "(DependencyNeverSatisfied); `scancel 7` removes it",
       {},
       true},
      {"another one runs",
       {task("PENDING", 0, 0, "DependencyNeverSatisfied"), task("RUNNING")},
       "job 7 is RUNNING",
       {}},
      {"all is well", {task("COMPLETED"), task("COMPLETED")}, "job 7 is COMPLETED", 0},
      {"the first failure counts",
       {task("FAILED", 4, 20), task("FAILED", 3, 10), task("COMPLETED")},
       "job 7 is FAILED",
       3},
      {"Slurm ended it", {task("TIMEOUT", 0, 10)}, "job 7 is TIMEOUT", 75},
  };
  for (const auto& row : rows) {
    const auto progress = progress_of("7", row.jobs);
    EXPECT_EQ(progress.state, row.state) << row.what;
    EXPECT_EQ(progress.exit_status, row.exit_status) << row.what;
    EXPECT_EQ(progress.never_starts, row.never_starts) << row.what;
  }
}

class SlurmWaiting : public testing::Test {
 protected:
  int wait() {
    return wait_for_job("7", slurm_.environment(), heard_.tell(),
                        {.first = std::chrono::milliseconds(1), .longest = std::chrono::milliseconds(1)});
  }
  static std::string job(const std::string& state, const std::string& more = "", const std::string& reason = "None") {
    return test::scontrol_job("JobId=7", state, "   SubmitTime=1000\n" + more, reason);
  }

  test::FakeSlurm slurm_;
  test::Heard heard_;
};

TEST_F(SlurmWaiting, TellsEachStateOnce) {
  slurm_.make_scontrol({job("PENDING"), job("RUNNING"), job("RUNNING"), job("FAILED", "   ExitCode=9:0\n")});
  EXPECT_EQ(wait(), 9);
  EXPECT_THAT(heard_.slurm, ElementsAre("job 7 is PENDING\n", "job 7 is RUNNING\n", "job 7 is FAILED\n"));
  EXPECT_EQ(slurm_.calls("scontrol").size(), 4U);
}

TEST_F(SlurmWaiting, EndsWhereNothingCanStart) {
  slurm_.make_scontrol({job("PENDING", "", "DependencyNeverSatisfied")});
  EXPECT_THAT(test::message_of([&] { wait(); }, ErrorCode::kFailedPrecondition),
              HasSubstr("It is still in the queue, and --wait does not wait for it"));
}

TEST_F(SlurmWaiting, TakesTheAccountsOfAForgottenJobButNotOfAnOlderOne) {
  const auto account = [&](const char* state, const char* submitted) {
    slurm_.make("sacct", std::string("echo '7|7|") + state + "|5:0|" + submitted +
                             "|1000|1060|1063|3|5|1||4|16M||00:01|0||||||n1|main|ada|None|/w|t|sbatch t'");
  };
  slurm_.make_scontrol({job("RUNNING"), ""});
  account("FAILED", "1000");
  EXPECT_EQ(wait(), 5);
  slurm_.make_scontrol({job("RUNNING"), ""});
  account("FAILED", "999");
  EXPECT_THAT(test::message_of([&] { wait(); }, ErrorCode::kNotFound),
              HasSubstr("neither slurmctld nor the accounts know job 7; so the end of job 7 is not known"));
}

TEST_F(SlurmWaiting, GoesOnWhileSlurmctldDoesNotAnswer) {
  slurm_.make("scontrol", "n=$(wc -l <" + slurm_.path("calls.scontrol") + ")\n[ $n = 3 ] || { echo '" +
                              test::kNoController + "' >&2; exit 1; }\ncat " + slurm_.path("end"));
  slurm_.write("end", job("COMPLETED"));
  EXPECT_EQ(wait(), 0);
  EXPECT_THAT(heard_.yoke, ElementsAre(testing::EndsWith("; still waiting"))) << "it is told once";
}

}  // namespace
}  // namespace yoke::slurm

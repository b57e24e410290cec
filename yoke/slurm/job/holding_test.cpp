#include "yoke/slurm/job/holding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::slurm {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

TEST(Holding, IsRequestedFromSbatch) {
  const auto words = request_command({.num_nodes = 2,
                                      .time = "01:00:00",
                                      .name = "debug",
                                      .partition = "gpu",
                                      .gpus_per_node = "4",
                                      .cpus_per_node = 8,
                                      .more = {"--constraint=a100"},
                                      .program = {"/home/ada/it's/yoke", "agent"}});
  EXPECT_EQ(words[0], "sbatch");
  for (const auto* one : {"--nodes=2", "--time=01:00:00", "--job-name=debug", "--partition=gpu", "--gpus-per-node=4",
                          "--cpus-per-task=8", "--constraint=a100", "--no-requeue"}) {
    EXPECT_THAT(words, Contains(one));
  }
  EXPECT_EQ(words.back(), "--wrap=exec '/home/ada/it'\\''s/yoke' 'agent'");
  EXPECT_THAT(request_command({}), Not(Contains(HasSubstr("--account"))));
}

TEST(Holding, PhasesFollowFromStates) {
  EXPECT_EQ(phase_of({.state = "PENDING"}), Phase::kWaiting);
  EXPECT_EQ(phase_of({.state = "CONFIGURING"}), Phase::kWaiting);
  EXPECT_EQ(phase_of({.state = "RUNNING"}), Phase::kHeld);
  EXPECT_EQ(phase_of({.state = "SUSPENDED"}), Phase::kHeld);
  EXPECT_EQ(phase_of({.state = "COMPLETING"}), Phase::kEnding);
  EXPECT_EQ(phase_of({.state = "NODE_FAIL"}), Phase::kEnded);
}

TEST(Holding, JobsBeforeItAreCounted) {
  EXPECT_EQ(count_before("7|100\n8|90\n9|200\n10_[1-3]|150\nnonsense\n", "7"), 2);
  EXPECT_EQ(count_before("9|200\n", "7"), 0);
}

TEST(Holding, ReasonsAreSaidInEnglish) {
  EXPECT_THAT(why_waiting("Resources"), HasSubstr("it is the next one"));
  EXPECT_THAT(why_waiting("ReqNodeNotAvail,_Reserved_for_maintenance"), HasSubstr("maintenance"));
  EXPECT_EQ(why_waiting("Newer"), "Slurm gives this reason (Newer)");
  EXPECT_EQ(why_waiting(""), "Slurm has not looked at it yet");
}

TEST(Holding, EndsAreSaidInEnglish) {
  EXPECT_THAT(why_ended({.state = "COMPLETING", .reason = "TimeLimit"}), HasSubstr("time limit"));
  EXPECT_THAT(why_ended({.state = "NODE_FAIL"}), HasSubstr("a node of it has failed"));
  EXPECT_THAT(why_ended({.state = "FAILED", .exit_code = 127}), HasSubstr("--remote-yoke"));
  EXPECT_THAT(why_ended({.state = "FAILED", .exit_code = 3}), HasSubstr("exit status 3"));
  EXPECT_THAT(why_ended({.state = "FAILED", .signal = 9}), HasSubstr("signal 9 ended"));
  EXPECT_THAT(why_ended({.state = "CANCELLED"}), HasSubstr("released or cancelled"));
}

TEST(Holding, VariablesOfAnOuterJobAreLeftOut) {
  const auto left = without_outer_job({{"SLURM_JOB_ID", "7"},
                                       {"SLURM_CONF", "/etc/x"},
                                       {"SLURM_CLUSTERS", "b"},
                                       {"SLURM_JWT", "t"},
                                       {"SRUN_CPUS_PER_TASK", "8"},
                                       {"SLURM_LABELIO", "1"},
                                       {"PMIX_RANK", "3"},
                                       {"HOME", "/home/ada"}});
  EXPECT_THAT(left.to_strings(),
              testing::ElementsAre("HOME=/home/ada", "SLURM_CLUSTERS=b", "SLURM_CONF=/etc/x", "SLURM_JWT=t"));
  EXPECT_TRUE(belongs_to_step("SLURM_PROCID"));
  EXPECT_TRUE(belongs_to_step("CUDA_VISIBLE_DEVICES"));
  EXPECT_FALSE(belongs_to_step("OMP_NUM_THREADS"));
}

}  // namespace
}  // namespace yoke::slurm

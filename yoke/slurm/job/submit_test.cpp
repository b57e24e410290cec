#include "yoke/slurm/job/submit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::slurm {
namespace {

using testing::HasSubstr;

TEST(SlurmSubmit, LeavesOutTheVariablesOfAnOuterJob) {
  const auto environment = environment_for_job({{"SLURM_CONF", "/etc/slurm.conf"},
                                                {"SLURM_CPUS_PER_TASK", "4"},
                                                {"SRUN_CPUS_PER_TASK", "4"},
                                                {"RANK", "3"},
                                                {"TORCHELASTIC_RUN_ID", "x"},
                                                {"SBATCH_ACCOUNT", "mine"},
                                                {"SBATCH_WAIT", "1"},
                                                {"SBATCH_CLUSTERS", "other"},
                                                {"PATH", "/bin"}});
  EXPECT_EQ(environment.to_strings(),
            (std::vector<std::string>{"PATH=/bin", "SBATCH_ACCOUNT=mine", "SLURM_CONF=/etc/slurm.conf"}));
}

TEST(SlurmSubmit, ReadsTheJobId) {
  const auto plain = parse_submission({.out = "4711\n", .err = ""});
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->job_id, "4711");
  const auto federated = parse_submission({.out = "hello from a plugin\n4711;alpha\n", .err = "sbatch: billed to x\n"});
  ASSERT_TRUE(federated);
  EXPECT_EQ(federated->job_id, "4711");
  EXPECT_EQ(federated->cluster, "alpha");
  EXPECT_EQ(federated->messages, (std::vector<std::string>{"billed to x", "hello from a plugin"}));
  EXPECT_EQ(parse_submission({.out = "Submitted?\n", .err = ""}), std::nullopt);
}

// The texts are what Slurm 22.05 printed.
TEST(SlurmSubmit, SaysWhatToGiveInstead) {
  const auto refused = [](const std::string& err) { return refusal_of({.status = 1, .out = "", .err = err}); };
  const auto cpus = refused(
      "sbatch: error: CPU count per node can not be satisfied\n"
      "sbatch: error: Batch job submission failed: Requested node configuration is not available\n");
  EXPECT_EQ(cpus.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(cpus.what(), HasSubstr("CPU count per node can not be satisfied; Batch job submission failed"));
  EXPECT_THAT(cpus.what(), HasSubstr("give fewer CPUs for each node or rank"));
  EXPECT_THAT(refused("sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: "
                      "Invalid partition name specified\n")
                  .what(),
              HasSubstr("give --partition with one of"));
  EXPECT_THAT(refused("sbatch: error: Batch job submission failed: More processors requested than permitted\n").what(),
              HasSubstr("give a smaller -N"));
  EXPECT_EQ(refused("sbatch: error: Unable to contact slurm controller (connect failure)\n").code(),
            ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace yoke::slurm

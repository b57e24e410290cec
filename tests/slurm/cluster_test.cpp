// Tests the cluster that other tests run in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/slurm.h"

namespace yoke::test {
namespace {

using testing::HasSubstr;

TEST(SlurmCluster, HasNodesWithNamesAddressesAndGpus) {
  if (const auto reason = SlurmCluster::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  SlurmCluster cluster({"--network", "--cpus", "8", "--gpus", "4", "2"});
  const auto step =
      cluster.run({"srun", "-N2", "--gpus-per-node=2", "sh", "-c", "echo $(hostname) $CUDA_VISIBLE_DEVICES"});
  EXPECT_THAT(step.out, HasSubstr("n1 0,1\n")) << step.err;
  EXPECT_THAT(step.out, HasSubstr("n2 0,1\n"));
  EXPECT_EQ(cluster.run({"srun", "-N1", "id", "-un"}, "ada").out, "ada\n");
  EXPECT_THAT(cluster.on(2, {"hostname"}).back(), "hostname");
  EXPECT_EQ(run({.argv = cluster.on(2, {"hostname"})}).out, "n2\n");
}

TEST(SlurmCluster, LosesANode) {
  if (const auto reason = SlurmCluster::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  SlurmCluster cluster({"--network", "2"});
  const auto job =
      cluster.run({"sbatch", "--parsable", "--requeue", "-N2", "-o", "/dev/null", "--wrap", "sleep 100"}).out;
  ASSERT_TRUE(cluster.wait_for_state(job.substr(0, job.find('\n')), "RUNNING"));
  cluster.cut(2);
  EXPECT_TRUE(cluster.wait_for_state(job.substr(0, job.find('\n')), "PENDING", milliseconds(120'000)));
}

TEST(SlurmCluster, KeepsAccounts) {
  if (const auto reason = SlurmCluster::why_not(true); !reason.empty()) GTEST_SKIP() << reason;
  SlurmCluster cluster({"--accounting", "1"});
  ASSERT_EQ(cluster.run({"srun", "true"}).exit_code, 0);
  EXPECT_TRUE(wait_until(
      [&] {
        return cluster.run({"sacct", "-X", "-n", "-P", "-o", "State"}).out == "COMPLETED\n";
      },
      milliseconds(90'000)));
}

}  // namespace
}  // namespace yoke::test

// Scripts against what a cluster says about itself: limits, memory, GPUs and their types.
#include "yoke/slurm/check/facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/slurm/check/rules.h"

namespace yoke::slurm::check {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(SlurmCheck, ComparesWithWhatTheClusterSays) {
  const auto facts = parse_facts(
      "EnforcePartLimits       = ALL\nSLURM_VERSION           = 22.05.8\nSelectTypeParameters    = CR_CORE_MEMORY\n"
      "DefMemPerNode           = UNLIMITED\nMaxArraySize            = 1001\n",
      "PartitionName=main Default=YES MaxTime=01:00:00 MaxNodes=UNLIMITED TotalNodes=3 DefMemPerNode=UNLIMITED "
      "OverSubscribe=NO\nPartitionName=shut State=INACTIVE MaxTime=01:00:00 TotalNodes=3\n",
      "main|8|8000|gpu:a100:4\n");
  EXPECT_EQ(facts.version, (Version{22, 5, 8}));
  const auto rules = [&](const std::string& options) {
    const auto script = read_script("job.sh", "#!/bin/sh\n#SBATCH " + options + "\nsrun x\n");
    std::vector<std::string> result;
    for (const auto& finding : check({.script = script, .version = facts.version, .site = &facts})) {
      if (finding.severity != Severity::kNote) result.push_back(finding.rule);
    }
    return result;
  };
  EXPECT_THAT(rules("-t 30 --mem=1G"), IsEmpty());
  EXPECT_THAT(rules("-t 2:00:00 --mem=1G"), ElementsAre("time-over-limit"));
  EXPECT_THAT(rules("-t 30 --mem=1G -p nope"), ElementsAre("unknown-partition"));
  EXPECT_THAT(rules("-t 30 --mem=99G"), ElementsAre("memory-over-node"));
  EXPECT_THAT(rules("-t 30 --mem=1G -N4"), ElementsAre("nodes-over-limit"));
  EXPECT_THAT(rules("-t 30 --mem=1G --gpus-per-node=5"), ElementsAre("gpus-over-node"));
  EXPECT_THAT(rules("-t 0 --mem=1G"), ElementsAre("time-over-limit"));
  EXPECT_THAT(rules("-t 30 --mem=1G -n 25"), ElementsAre("cpus-over-node"));
  EXPECT_THAT(rules("-t 30 --mem=1G -n 24"), IsEmpty());
  EXPECT_THAT(rules("-t 30 --mem=1G -n 25 -O"), IsEmpty());
  EXPECT_THAT(rules("-t 30 --mem=1G -n 9 -N1"), ElementsAre("cpus-over-node"));
  EXPECT_THAT(rules("-t 30 --mem=1G -n 4 -c 8"), Contains("cpus-over-node"));
  EXPECT_THAT(rules("-t 30 --mem=1G -N2 --ntasks-per-node=9"), ElementsAre("cpus-over-node"));
  EXPECT_THAT(rules("-t 30 --mem=1G --mincpus=9"), ElementsAre("cpus-over-node"));
  EXPECT_THAT(rules("-t 30 --mem=1G --cpus-per-gpu=4 --gpus=4 -N1"), Contains("cpus-over-node"));
  EXPECT_THAT(rules("-t 30 --mem=1G --cpus-per-gpu=2 --gpus=4 -N1"), testing::Not(Contains("cpus-over-node")));
  EXPECT_THAT(rules("-t 30 --mem=1G --cpus-per-gpu=4 --gpus=4"),
              testing::Not(Contains("cpus-over-node")));  // two nodes
  EXPECT_THAT(rules("-t 30 --mem-per-cpu=9G"), ElementsAre("memory-over-node"));
  EXPECT_THAT(rules("-t 30 --mem-per-cpu=5G"), IsEmpty());
  EXPECT_THAT(rules("-t 30 --mem=1G --gpus-per-task=5 -n1"), Contains("gpus-over-node"));
  EXPECT_THAT(rules("-t 30 --mem=1G -p shut"), ElementsAre("unknown-partition"));
  EXPECT_THAT(rules("-t 30 --mem=1G --gpus=13"), ElementsAre("gpus-over-node"));
  EXPECT_THAT(rules("-t 30 --mem=1G --gpus=12"), IsEmpty());
  EXPECT_THAT(rules("-t 30 --mem=1G --gpus=5 -N1"), ElementsAre("gpus-over-node"));
  EXPECT_THAT(rules("-t 30"), ElementsAre("no-memory"));
  EXPECT_THAT(rules("-t 30 --mem=1G --gres=gpu:h100:1"), ElementsAre("unknown-gpu-type"));
  EXPECT_THAT(rules("-t 30 --mem=1G --gres=gpu:a100:1"), IsEmpty());
  EXPECT_THAT(rules("-t 30 --mem=1G --array=0-1001"), ElementsAre("array-over-limit"));
  EXPECT_THAT(rules("-t 30 --mem=1G --array=0-1000:10%2"), IsEmpty());
  EXPECT_THAT(rules("-t 30 --mem=1G --gres=nvme:1"), ElementsAre("unknown-gres"));
  EXPECT_THAT(rules("-t 30 --mem=1G -N1 --ntasks-per-node=5 --gpus-per-task=1"), ElementsAre("gpus-over-node"));
  EXPECT_THAT(rules("-t 30 --mem=1G --ntasks-per-node=9"), ElementsAre("cpus-over-node"));
}

// DefMemPerGPU is a default for jobs with GPUs alone.
TEST(SlurmCheck, KnowsTheDefaultMemoryOfAGpu) {
  const auto facts =
      parse_facts("SLURM_VERSION = 24.11.5\nSelectTypeParameters = CR_CORE_MEMORY\nDefMemPerNode = UNLIMITED\n",
                  "PartitionName=gpu Default=YES TotalNodes=1 DefMemPerNode=UNLIMITED "
                  "JobDefaults=DefCpuPerGPU=8,DefMemPerGPU=64000\n",
                  "gpu|64|512000|gpu:a100:4\n");
  const auto severity = [&](const std::string& options) {
    const auto script = read_script("job.sh", "#!/bin/sh\n#SBATCH -t 5 " + options + "\nsrun x\n");
    for (const auto& finding : check({.script = script, .version = facts.version, .site = &facts})) {
      if (finding.rule == "no-memory") return finding.severity;
    }
    return Severity::kError;
  };
  EXPECT_EQ(severity("--gpus-per-node=1"), Severity::kNote);
  EXPECT_EQ(severity("-n1"), Severity::kWarning);
}

// Each type is counted for itself; slices of MIG are types.
TEST(SlurmCheck, CountsTheTypesOfGpus) {
  const auto facts =
      parse_facts("SLURM_VERSION = 24.11.5\nMaxArraySize = 1001\n",
                  "PartitionName=gpu Default=YES MaxNodes=UNLIMITED TotalNodes=1\n",
                  "gpu|224|2060000|gpu:nvidia_b200:4(S:0,1),gpu:nvidia_b200_2g.45gb:8(S:0-1),nvme:1(S:0)|2\n");
  const auto& partition = facts.partitions.at("gpu");
  EXPECT_EQ(partition.gpus_of_type, (std::map<std::string, int64_t>{{"nvidia_b200", 4}, {"nvidia_b200_2g.45gb", 8}}));
  EXPECT_EQ(partition.gres_names, (std::set<std::string>{"gpu", "nvme"}));
  const auto rules = [&](const std::string& options) {
    const auto script = read_script("job.sh", "#!/bin/sh\n#SBATCH --mem=1G -t 5 " + options + "\nsrun x\n");
    std::vector<std::string> result;
    for (const auto& finding : check({.script = script, .version = facts.version, .site = &facts})) {
      if (finding.severity != Severity::kNote) result.push_back(finding.rule);
    }
    return result;
  };
  EXPECT_THAT(rules("-N1 --gpus-per-node=nvidia_b200:8"), ElementsAre("gpus-over-node"));
  EXPECT_THAT(rules("-N1 --gres=gpu:nvidia_b200_2g.45gb:9"), ElementsAre("gpus-over-node"));
  EXPECT_THAT(rules("-N1 --gres=gpu:nvidia_b200_2g.45gb:8"), IsEmpty());
  EXPECT_THAT(rules("-N1 --gpus-per-node=nvidia_b200:4"), IsEmpty());
  EXPECT_THAT(rules("-N1 --gres=gpu:1,nvme:1"), IsEmpty());
}

}  // namespace
}  // namespace yoke::slurm::check

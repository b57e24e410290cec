#include "yoke/slurm/job/node_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "tests/support/command.h"
#include "tests/support/fake_slurm.h"
#include "yoke/base/file.h"
#include "yoke/base/process.h"

namespace yoke::slurm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class OneGpu : public device::Source {
 public:
  device::Snapshot sample(const device::Want& /*want*/) override {
    device::Snapshot snapshot;
    snapshot.devices.resize(1);
    snapshot.devices[0].vendor = device::Vendor::kNvidia;
    return snapshot;
  }
};

class SlurmNodeSampler : public testing::Test {
 protected:
  NodeSampler sampler(const Tell& tell) const {
    const auto open = [this] {
      folder_.write("begun", "");
      return std::make_unique<OneGpu>();
    };
    return NodeSampler({.job = 7, .folder = folder_.path("7"), .open = open},
                       {{"SLURMD_NODENAME", "n1"},
                        {"SLURM_STEP_ID", "3"},
                        {"SLURM_CLUSTER_NAME", "yoke"},
                        {"SLURM_RESTART_COUNT", "2"},
                        {"SLURM_JOB_CPUS_PER_NODE", "8(x2)"}},
                       tell);
  }
  std::vector<NodeSample> samples() const {
    std::vector<NodeSample> samples;
    if (!std::filesystem::exists(folder_.path("7"))) return samples;
    for (const auto& file : std::filesystem::directory_iterator(folder_.path("7"))) {
      EXPECT_THAT(file.path().filename().string(), testing::StartsWith("n1.3.2."));
      EXPECT_EQ(file.status().permissions(), std::filesystem::perms(0600));
      samples.push_back(*parse_sample(test::slurp(file.path())));
    }
    return samples;
  }

  test::TemporaryFolder folder_;
  test::Heard heard_;
};

TEST_F(SlurmNodeSampler, WritesWhatAProgramUsed) {
  const auto tell = heard_.tell();
  auto sampler = this->sampler(tell);
  EXPECT_EQ(sample_program(sampler, {"sh", "-c", "exit 3"}, tell), 3);
  EXPECT_THAT(heard_.yoke, IsEmpty());
  ASSERT_EQ(samples().size(), 1U);
  const auto sample = samples()[0];
  EXPECT_EQ(sample.job, 7);
  EXPECT_EQ(sample.host, "n1");
  EXPECT_EQ(sample.cluster, "yoke");
  EXPECT_EQ(sample.num_cpus, 8);
  EXPECT_TRUE(sample.is_finished);
  EXPECT_GE(sample.num_samples, 1);
  ASSERT_EQ(sample.devices.size(), 1U);
  EXPECT_EQ(sample.devices[0].id, "0");
}

TEST_F(SlurmNodeSampler, AProgramGetsTheSignalsOfOthers) {
  const auto tell = heard_.tell();
  auto sampler = this->sampler(tell);
  EXPECT_EQ(
      sample_program(sampler, {"sh", "-c", "trap 'exit 5' USR1; kill -USR1 $PPID; while :; do sleep 0.01; done"}, tell),
      5);
}

TEST_F(SlurmNodeSampler, AProgramThatIsMissingIsTold) {
  const auto tell = heard_.tell();
  auto sampler = this->sampler(tell);
  EXPECT_EQ(sample_program(sampler, {"/no/such/program"}, tell), 127);
  EXPECT_THAT(heard_.yoke, ElementsAre(HasSubstr("cannot run /no/such/program: ")));
  EXPECT_THAT(samples(), IsEmpty());
  heard_ = {};
  EXPECT_EQ(become_program({folder_.path()}, tell), 126) << "it is a folder";
  EXPECT_THAT(heard_.yoke, ElementsAre(HasSubstr("cannot run ")));
}

TEST_F(SlurmNodeSampler, AFolderThatCannotBeWrittenIsToldOnce) {
  const auto tell = heard_.tell();
  folder_.write("7", "a file");
  auto sampler = this->sampler(tell);
  sampler.begin();
  sampler.finish();
  sampler.finish();
  EXPECT_THAT(heard_.yoke, ElementsAre(HasSubstr("no samples of this job are kept: ")));
}

// In child processes, because signals are ignored from then on.
TEST_F(SlurmNodeSampler, SamplesUntilTheLauncherHasEnded) {
  for (const bool is_short : {true, false}) {
    auto pipe = make_pipe();
    if (is_short) pipe.write_end.reset();
    const pid_t child = fork();
    if (child == 0) {
      pipe.write_end.reset();
      const auto tell = heard_.tell();
      auto sampler = this->sampler(tell);
      sample_until_eof(sampler, pipe.read_end.value(), is_short ? std::chrono::hours(1) : std::chrono::hours(0));
      _exit(sampler.has_begun() ? 1 : 0);
    }
    if (!is_short) {
      EXPECT_TRUE(test::wait_until([&] { return std::filesystem::exists(folder_.path("begun")); }));
      kill(child, SIGTERM);  // is ignored
      pipe.write_end.reset();
    }
    EXPECT_EQ(wait_for_child(child), is_short ? 0 : 1);
    EXPECT_EQ(samples().size(), is_short ? 0U : 1U) << "a launcher that ends at once leaves no file";
  }
  EXPECT_TRUE(samples().at(0).is_finished);
}

TEST(SlurmJobSampler, RunsWhileItsOwnerDoes) {
  const test::TemporaryFolder folder;
  folder.write("yoke", "#!/bin/sh\necho \"$*\" >" + folder.path("words") + "; cat; echo end >" + folder.path("end"),
               true);
  { const JobSampler none(folder.path("yoke"), {{"HOME", folder.path()}}); }
  EXPECT_EQ(test::slurp(folder.path("words")), "") << "this is no job";
  {
    const JobSampler sampler(folder.path("yoke"),
                             {{"HOME", folder.path()}, {"SLURM_JOB_ID", "7"}, {"PATH", "/usr/bin:/bin"}});
    EXPECT_TRUE(test::wait_until([&] { return test::slurp(folder.path("words")) == "slurm sample --until-eof\n"; }));
    EXPECT_EQ(test::slurp(folder.path("end")), "");
  }
  EXPECT_EQ(test::slurp(folder.path("end")), "end\n");
}

}  // namespace
}  // namespace yoke::slurm

#include "yoke/slurm/job/verify_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/fake_slurm.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/base/table.h"

namespace yoke::slurm {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TaskSeen task(int64_t rank, const char* cpus) {
  return {.rank = rank,
          .local_rank = rank,
          .local_world_size = 2,
          .host = "n1",
          .cpus = *CpuSet::parse_list(cpus),
          .memory_nodes = *CpuSet::parse_list("0"),
          .memory_policy = "default",
          .numa = {{0, *CpuSet::parse_list("0-7")}},
          .gpus_given = 0};
}

class SlurmVerifyStep : public testing::Test {
 protected:
  SlurmVerifyStep() { slurm_.make("scontrol", "echo 'Slurmctld(primary) at a is UP'"); }

  StepReport verify() const {
    auto environment = slurm_.environment();
    environment.set("SLURM_JOB_ID", "7");
    return verify_step({.srun = {"-n2"}, .read = {"yoke", "--read"}}, {}, environment);
  }
  /// Tasks answer with `tasks`, and with `measured` where they are asked to measure.
  void make_srun(const std::vector<TaskSeen>& tasks, const std::string& if_measured) const {
    std::string lines;
    for (const auto& one : tasks) lines += task_lines(one);
    slurm_.write("lines", lines);
    slurm_.make("srun",
                "case \"$*\" in *--measure=*) " + if_measured + ";; *) cat " + slurm_.path("lines") + ";; esac");
  }

  test::FakeSlurm slurm_;
};

TEST_F(SlurmVerifyStep, RightTasksAreNotMeasured) {
  make_srun({task(1, "4-7"), task(0, "0-3")}, "exit 9");
  const auto report = verify();
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_THAT(slurm_.calls("srun"), ElementsAre("-n2 yoke --read"));
  EXPECT_EQ(report.tasks.at(0).rank, 0);
  EXPECT_THAT(to_text(report, kUnlimitedWidth),
              HasSubstr("\nverdict: right; each of the 2 ranks has CPUs of its own\n"));
  EXPECT_EQ(to_json(report).at("findings").size(), 0U);
  EXPECT_FALSE(to_json(report).contains("not_measured"));
}

TEST_F(SlurmVerifyStep, WrongTasksAreMeasuredInAStepOfTheirOwn) {
  auto measured = task(0, "0-3");
  measured.measured = MemoryMeasured{.own = int64_t{3} << 30, .num_own = 4, .whole = int64_t{5} << 30, .num_whole = 8};
  slurm_.write("measured", task_lines(measured));
  make_srun({task(0, "0-3"), task(1, "0-3")}, "cat " + slurm_.path("measured"));
  const auto report = verify();
  ASSERT_FALSE(report.findings.empty());
  EXPECT_THAT(slurm_.calls("srun"), ElementsAre("-n2 yoke --read", "-n2 yoke --read --measure=0,1"));
  EXPECT_THAT(
      to_text(report, kUnlimitedWidth),
      AllOf(HasSubstr("wrong: " + report.findings[0].text + "\n       " + report.findings[0].advice + "\n"),
            HasSubstr("measured: rank 0 copies memory at 3.0 GiB/s on its 4 CPUs, 5.0 GiB/s on the 8 CPUs of its "
                      "control group\n"),
            Not(HasSubstr("rank 1 copies")), HasSubstr("verdict: wrong, for ")));
  // A step that cannot measure does not lose the findings.
  make_srun({task(0, "0-3"), task(1, "0-3")}, "echo 'srun: error: no' >&2; exit 1");
  EXPECT_THAT(to_json(verify()).at("not_measured").get<std::string>(), HasSubstr("srun: error: no"));
}

TEST_F(SlurmVerifyStep, SaysWhyThereIsNoStep) {
  EXPECT_EQ(test::error_of([&] { verify_step({}, {}, slurm_.environment()); }).code(), ErrorCode::kFailedPrecondition);
  slurm_.make("srun", "echo 'srun: error: Unable to create step' >&2; exit 1");
  EXPECT_THAT(test::message_of([&] { verify(); }, ErrorCode::kFailedPrecondition), HasSubstr("Unable to create step"));
  slurm_.make("scontrol", "echo 'Slurmctld(primary) at a is DOWN'; exit 1");
  EXPECT_EQ(test::error_of([&] { verify(); }).code(), ErrorCode::kUnavailable);
  slurm_.make("srun", "");
  EXPECT_THAT(slurm_.calls("srun"), IsEmpty());
}

TEST(SlurmTaskReader, KnowsWhatStartedThisProcess) {
  EXPECT_FALSE(is_a_task({}));
  EXPECT_TRUE(is_a_task({{"OMPI_COMM_WORLD_RANK", "0"}}));
  EXPECT_TRUE(is_a_task({{"SLURM_STEP_ID", "0"}}));
  EXPECT_FALSE(is_a_task({{"SLURM_STEP_ID", "4294967291"}})) << "a batch script";
  EXPECT_FALSE(is_a_task({{"SLURM_STEP_ID", "4294967290"}})) << "the shell of salloc";
}

// Oracles: the kernel's own words about this process.
TEST(SlurmTaskReader, ReadsThisProcess) {
  class NoDevices : public device::Source {
   public:
    device::Snapshot sample(const device::Want& /*want*/) override { return {}; }
  } source;
  const auto seen = read_task(source, {},
                              {{"SLURM_PROCID", "3"},
                               {"SLURM_STEP_NUM_TASKS", "4"},
                               {"SLURM_LOCALID", "3"},
                               {"SLURM_STEP_ID", "0"},
                               {"SLURM_JOB_ID", "7"},
                               {"SLURM_NNODES", "1"},
                               {"SLURM_STEP_GPUS", "0,2"},
                               {"SLURM_CPUS_PER_TASK", "2"}});
  EXPECT_EQ(seen.rank, 3);
  EXPECT_EQ(seen.cpus_asked, 2);
  EXPECT_EQ(seen.gpus_given, 2);
  EXPECT_EQ(seen.cgroup + "\n", test::slurp("/proc/self/cgroup"));
  const auto status = test::slurp("/proc/self/status");
  EXPECT_THAT(status, AllOf(HasSubstr("Cpus_allowed_list:\t" + seen.cpus.to_list() + "\n"),
                            HasSubstr("Mems_allowed_list:\t" + seen.memory_nodes.to_list() + "\n")));
  const auto without = read_task(source, {.has_gpus = false}, {});
  EXPECT_EQ(without.gpus_given, std::nullopt);
}

}  // namespace
}  // namespace yoke::slurm

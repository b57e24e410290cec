#include "yoke/slurm/verify/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "tests/support/message_of.h"
#include "yoke/slurm/verify/measure.h"
#include "yoke/slurm/verify/request.h"

namespace yoke::slurm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

CpuSet cpu_list(const char* text) { return *CpuSet::parse_list(text); }

/// A node with two NUMA nodes of eight CPUs, and a GPU on each.
const GpuSeen kFirst{"0000:01:00.0", "A", 0, cpu_list("0-7"), "mlx5_0 (PIX)", ""};
const GpuSeen kSecond{"0000:81:00.0", "A", 1, cpu_list("8-15"), "mlx5_1 (PIX)", ""};

/// Two ranks as they should be.
std::vector<TaskSeen> right() {
  std::vector<TaskSeen> tasks(2);
  for (int64_t rank = 0; rank < 2; ++rank) {
    auto& task = tasks[static_cast<size_t>(rank)];
    task = {.rank = rank,
            .local_rank = rank,
            .local_world_size = 2,
            .host = "n1",
            .cpus = cpu_list(rank == 0 ? "0-7" : "8-15"),
            .memory_nodes = cpu_list("0-1"),
            .memory_policy = "default",
            .memory_policy_nodes = {},
            .numa = {{0, cpu_list("0-7")}, {1, cpu_list("8-15")}},
            .openable = {kFirst, kSecond},
            .visible = {0, 1},
            .variables = {"CUDA_VISIBLE_DEVICES=0,1"},
            .hidden_why = "",
            .driver_why = "",
            .gpus_given = 2,
            .cgroup = "0::/a",
            .cpus_asked = 8,
            .measured = {}};
  }
  return tasks;
}

std::string only_text(const std::vector<TaskSeen>& tasks) {
  const auto findings = judge(tasks);
  return findings.size() == 1 ? findings[0].text : std::to_string(findings.size()) + " findings";
}

TEST(SlurmVerify, WhatIsRightHasNoFindings) {
  EXPECT_THAT(judge(right()), IsEmpty());
  auto on_two_hosts = right();
  on_two_hosts[1] = on_two_hosts[0];
  on_two_hosts[1].rank = 1;
  on_two_hosts[1].host = "n2";
  EXPECT_THAT(judge(on_two_hosts), IsEmpty()) << "CPUs and devices of other hosts have the same names";
  auto without_devices = right();
  for (auto& task : without_devices) {
    task.openable.clear(), task.visible.clear(), task.variables.clear();
    task.gpus_given = 0;
  }
  EXPECT_THAT(judge(without_devices), IsEmpty());
  for (auto& task : without_devices)
    task.driver_why = "nvml: not installed", task.variables = {"CUDA_VISIBLE_DEVICES="};
  EXPECT_THAT(judge(without_devices), IsEmpty()) << "a node without GPUs needs no driver";
  EXPECT_EQ(verdict_text(without_devices), "each of the 2 ranks has CPUs of its own");
  EXPECT_EQ(verdict_text(right()), "each of the 2 ranks has CPUs and a device of its own");
}

// No rank has a device, though each should have one.
TEST(SlurmVerify, NoRankHasADevice) {
  struct Row {
    std::optional<int64_t> given;
    std::vector<GpuSeen> openable;
    std::vector<std::string> variables;
    std::string hidden_why, driver_why;
    StepWish wish;
    std::string expected;
  };
  const std::vector<GpuSeen> both = {kFirst, kSecond};
  const std::string begin = "ranks 0-1 on n1 have no device: ";
  const std::vector<Row> rows = {
      {2, {}, {}, "", "nvml: no driver", {}, begin + "no driver shows one: nvml: no driver"},
      {2, both, {"CUDA_VISIBLE_DEVICES=9"}, "CUDA_VISIBLE_DEVICES=9: '9' is out of range", "", {}, begin + "CUDA_"},
      {0, both, {"CUDA_VISIBLE_DEVICES=0,0"}, "CUDA_VISIBLE_DEVICES=0,0: '0' is cancelled", "", {}, begin + "CUDA_"},
      {0, both, {"CUDA_VISIBLE_DEVICES="}, "CUDA_VISIBLE_DEVICES=: empty", "", {}, begin + "CUDA_"},
      {std::nullopt, both, {"ROCR_VISIBLE_DEVICES=7"}, "ROCR_VISIBLE_DEVICES=7: '7'", "", {}, begin + "ROCR_"},
      {0, {}, {"CUDA_VISIBLE_DEVICES=0"}, "", "nvml: broken", {}, begin + "no driver shows one: nvml: broken"},
      {0, {}, {}, "", "", {.cpu_bind = "", .wants_gpu = true}, begin + "Slurm gave the step none"},
      {0, both, {}, "", "", {}, ""},
      {0, {}, {"CUDA_VISIBLE_DEVICES=NoDevFiles"}, "", "nvml: no driver", {}, ""},
  };
  for (const auto& row : rows) {
    auto tasks = right();
    for (auto& task : tasks) {
      task.gpus_given = row.given;
      task.openable = row.openable;
      task.visible.clear();
      task.variables = row.variables;
      task.hidden_why = row.hidden_why;
      task.driver_why = row.driver_why;
    }
    const auto findings = judge(tasks, row.wish);
    ASSERT_THAT(findings, SizeIs(row.expected.empty() ? 0 : 1)) << testing::PrintToString(row.variables);
    if (!findings.empty()) {
      EXPECT_THAT(findings[0].text, HasSubstr(row.expected));
    }
    tasks.resize(1);
    EXPECT_THAT(judge(tasks, row.wish), SizeIs(findings.size())) << "a task can judge that alone";
  }
}

TEST(SlurmVerify, DevicesThatAreNotTheirOwn) {
  auto tasks = right();
  for (auto& task : tasks) {
    task.gpus_given = 0;
    task.variables.clear();
    task.visible = {0};
  }
  EXPECT_THAT(judge(tasks), IsEmpty()) << "a job that uses no GPU does not share one";
  EXPECT_THAT(notes(tasks), ElementsAre(HasSubstr("Slurm gave the step no GPU, but ranks 0-1 on n1 can open 1")));
  EXPECT_EQ(verdict_text(tasks), "each of the 2 ranks has CPUs of its own");
  EXPECT_THAT(judge(tasks, {.cpu_bind = "", .wants_gpu = true}), SizeIs(1));
  EXPECT_THAT(notes(right()), IsEmpty());
  tasks = right();
  for (auto& task : tasks) task.gpus_given = 1;
  EXPECT_THAT(only_text(tasks), HasSubstr("ranks 0-1 on n1 see 2 devices, but Slurm gave the step 1"));
  tasks = right();
  tasks[1].openable[1].trouble = "lost";
  EXPECT_EQ(only_text(tasks), "rank 1 on n1 has the device 0000:81:00.0, which cannot be used: lost");
}

TEST(SlurmVerify, TheOptionOfTheUserIsTheCause) {
  auto tasks = right();
  for (auto& task : tasks) task.cpus = cpu_list("0"), task.cpus_asked.reset(), task.visible.clear();
  for (auto& task : tasks) task.variables.clear(), task.openable.clear(), task.gpus_given = 0;
  EXPECT_THAT(judge(tasks).at(0).advice, HasSubstr("give --cpus-per-task to srun too"));
  EXPECT_THAT(judge(tasks, {.cpu_bind = "quiet,map_cpu:0,0"}).at(0).advice, HasSubstr("map_cpu:0,0 chooses these"));
}

TEST(SlurmVerify, OneDeviceForTwoRanks) {
  auto tasks = right();
  for (auto& task : tasks) task.visible = {0};
  tasks[1].cpus = cpu_list("1");
  tasks[0].cpus = cpu_list("0");
  for (auto& task : tasks) task.cpus_asked.reset();
  EXPECT_EQ(only_text(tasks), "ranks 0-1 on n1 have the same device, 0000:01:00.0");
}

TEST(SlurmVerify, ARankWithoutADevice) {
  auto tasks = right();
  tasks[1].visible.clear();
  EXPECT_EQ(only_text(tasks), "rank 1 on n1 has no device, while others have one: variables hide all devices");
}

TEST(SlurmVerify, DevicesInControlGroupsOfTheirOwn) {
  auto tasks = right();
  tasks[0].openable = {kFirst};
  tasks[1].openable = {kSecond};
  for (auto& task : tasks) task.visible = {0};
  EXPECT_THAT(only_text(tasks), HasSubstr("ranks 0-1 on n1 cannot open the devices of the other ranks"));
  EXPECT_THAT(judge(tasks)[0].advice, HasSubstr("--gpu-bind=none"));
  for (auto& task : tasks) task.openable = {kFirst, kSecond};
  tasks[1].visible = {1};
  EXPECT_THAT(judge(tasks), IsEmpty()) << "a variable alone does not prevent IPC";
}

TEST(SlurmVerify, CpusThatAreFarSharedOrFew) {
  auto tasks = right();
  std::swap(tasks[0].cpus, tasks[1].cpus);
  const auto far = judge(tasks);
  ASSERT_THAT(far, SizeIs(2));
  EXPECT_EQ(far[0].text, "rank 0 on n1 has the CPUs 8-15, but its device 0000:01:00.0 is close to the CPUs 0-7");
  tasks = right();
  for (auto& task : tasks) task.cpus = cpu_list("0-15");
  EXPECT_EQ(only_text(tasks), "ranks 0-1 on n1 share the CPUs 0-15");
  for (auto& task : tasks) task.cpus = cpu_list("0"), task.cpus_asked.reset(), task.openable[0].cpus = {};
  for (auto& task : tasks) task.openable[1].cpus = {};
  EXPECT_EQ(only_text(tasks), "ranks 0-1 on n1 all have only CPU 0");
  tasks = right();
  tasks[1].cpus = cpu_list("8");
  EXPECT_EQ(only_text(tasks), "rank 1 on n1 has fewer CPUs than the 8 that were asked for");
}

TEST(SlurmVerify, MemoryOfAnotherNode) {
  auto tasks = right();
  tasks[0].memory_nodes = cpu_list("1");
  EXPECT_EQ(only_text(tasks), "rank 0 on n1 has CPUs of NUMA node 0, but memory only of node 1");
  tasks = right();
  tasks[1].memory_policy = "bind 0";
  tasks[1].memory_policy_nodes = cpu_list("0");
  EXPECT_EQ(only_text(tasks), "rank 1 on n1 has CPUs of NUMA node 1, but its memory policy is bind 0");
}

TEST(SlurmVerify, TasksAreJson) {
  auto task = right()[1];
  task.hidden_why = "a", task.driver_why = "b", task.openable[0].trouble = "lost";
  task.measured = MemoryMeasured{.own = 5, .num_own = 1, .whole = 7, .num_whole = 2};
  EXPECT_EQ(task_from_json(nlohmann::json::parse(to_json(task).dump())), task);
  EXPECT_THROW(task_from_json(nlohmann::json::parse("{}")), nlohmann::json::exception);
}

TEST(SlurmVerify, TheTableHasWhatWasRead) {
  const auto table = to_table(right());
  EXPECT_THAT(table.rows[1], ElementsAre("1", "n1", "0000:81:00.0", "1", "8-15 (8)", "1", "0-1", "mlx5_1 (PIX)"));
  EXPECT_EQ(ranks_text({0, 1, 2, 5}), "ranks 0-2, 5");
}

TEST(SlurmVerify, ARequestIsJudgedWithoutAJob) {
  const auto wanted = read_step_request({"-N2", "--ntasks-per-node=4", "--gpus-per-task", "a100:1", "-c", "8"}, {}, {});
  EXPECT_EQ(wanted.num_nodes, 2);
  EXPECT_EQ(wanted.num_tasks, 8);
  EXPECT_EQ(wanted.cpus_per_task, 8);
  EXPECT_EQ(wanted.gpus_per_task, 1);
  ASSERT_THAT(judge(wanted), SizeIs(1));
  EXPECT_THAT(judge(wanted)[0].text, HasSubstr("--gpus-per-task gives each task a control group"));
  const auto of_job = read_step_request(
      {},
      {{"SLURM_NTASKS", "4"}, {"SLURM_JOB_NUM_NODES", "1"}, {"SLURM_GPUS_PER_NODE", "2"}, {"SLURM_CPUS_PER_TASK", "8"}},
      Version{23, 2, 0});
  ASSERT_THAT(judge(of_job), SizeIs(2));
  EXPECT_THAT(judge(of_job)[0].text, HasSubstr("one core"));
  EXPECT_THAT(judge(of_job)[1].text, HasSubstr("4 tasks of a node share 2 GPUs"));
  EXPECT_THAT(judge(read_step_request({"-n2", "--cpu-bind=none"}, {}, {})), SizeIs(1));
  const Environment job = {{"SLURM_CPUS_PER_TASK", "8"}};
  EXPECT_THAT(judge(read_step_request({"--gpus-per-node=1"}, job, Version{23, 11, 0})), IsEmpty());
  for (const auto* binding : {"verbose,mask_cpu:0x3,0xc", "map_cpu:0,1", "none", "quiet,none"}) {
    const auto findings = judge(read_step_request({"--gpus-per-node=1", std::string("--cpu-bind=") + binding}, {}, {}));
    EXPECT_THAT(findings, IsEmpty()) << binding;
  }
  EXPECT_EQ(read_step_request({"--gres=gpu:a100"}, {}, {}).gpus_per_node, 1);
  EXPECT_EQ(read_step_request({"--gres=gpu:2,nvme:100"}, {}, {}).gpus_per_node, 2);
  EXPECT_EQ(read_step_request({"--gres=nvme:100"}, {}, {}).gpus_per_node, std::nullopt);
  EXPECT_EQ(describe(read_step_request({"--gpus=0"}, {}, {})).back(), "no task should have a GPU");
  EXPECT_EQ(read_step_request({"-N2-4"}, {}, {}).num_nodes, 2);
  EXPECT_THAT(judge(read_step_request({"-n2", "-N2", "--gres=gpu:4", "-c8"}, {}, {})), IsEmpty());
  EXPECT_THAT(test::message_of([] { read_step_request({"--bogus"}, {}, {}); }), HasSubstr("--bogus: srun has no"));
  EXPECT_THAT(test::message_of([] { read_step_request({"-n", "x"}, {}, {}); }), HasSubstr("--ntasks is 'x'"));
}

// A list of --cpu-bind begins again if a node has more tasks.
TEST(SlurmVerify, ABindingIsJudgedWithoutAJob) {
  struct Row {
    std::vector<std::string> options;
    std::string expected;  // of the only finding; empty: none
  };
  const std::vector<Row> rows = {
      {{"-n4", "--cpu-bind=mask_cpu:0x1"}, "the tasks 0-3 of a node share the CPU 0"},
      {{"-n2", "--cpu-bind=mask_cpu:0x1,0x1"}, "the tasks 0-1 of a node share the CPU 0"},
      {{"-n2", "--cpu-bind=v,map_cpu:0,0"}, "the tasks 0-1 of a node share the CPU 0"},
      {{"-n3", "--cpu-bind=mask_cpu:0x3,0xc,0x6"}, "the tasks 0-2 of a node share the CPUs 1-2"},
      {{"-n2", "--cpu-bind=mask_cpu:0x1*2"}, "the tasks 0-1 of a node share the CPU 0"},
      {{"-n2", "--cpu-bind=map_cpu:0,x"}, "'x' in --cpu-bind is not a number of a CPU"},
      {{"-n2", "--cpu-bind=bogus"}, "srun does not know --cpu-bind=bogus"},
      {{"-n2", "--cpu-bind=map_cpu:"}, "srun does not know --cpu-bind=map_cpu:"},
      {{"-n2", "--cpu-bind=map_cpu:0x0,0xA"}, ""},
      {{"-n2", "-N2", "--cpu-bind=map_cpu:0"}, ""},
      {{"-n2", "--cpu-bind=Cores"}, ""},
      {{"-n2", "--cpu-bind=map_ldom:0,0"}, ""},
      {{"-n2"}, ""},
  };
  for (const auto& [options, expected] : rows) {
    const auto findings = judge(read_step_request(options, {}, {}));
    ASSERT_THAT(findings, SizeIs(expected.empty() ? 0 : 1)) << testing::PrintToString(options);
    if (!findings.empty()) {
      EXPECT_THAT(findings[0].text, HasSubstr(expected));
    }
  }
  EXPECT_EQ(describe(read_step_request({"-n1"}, {}, {})).front(), "1 task on 1 node, 1 on each");
  const Environment job = {{"SLURM_GPUS_PER_NODE", "2"}};
  EXPECT_TRUE(read_step_request({}, job, {}).wants_gpu());
  EXPECT_FALSE(read_step_request({"--gpus=0"}, job, {}).wants_gpu());
  EXPECT_FALSE(read_step_request({"--gres=none"}, job, {}).wants_gpu());
  EXPECT_THAT(test::message_of([] { check_no_program({"-n", "2", "./train.py"}); }), HasSubstr("./train.py is not an"));
  check_no_program({"-n", "2", "--container-image", "x"});
}

// What srun 22.05.8 printed.
TEST(SlurmVerify, TheReasonOfSrunIsKept) {
  const auto said = [](const std::string& err) {
    return std::string(
        step_failure({.status = 1, .timed_out = false, .out = "", .err = err}, std::chrono::seconds(1)).what());
  };
  EXPECT_EQ(said("srun: error: CPU binding outside of job step allocation, allocated CPUs are: 0x3.\n"
                 "srun: error: Task launch for StepId=2.1 failed on node n1: Unable to satisfy cpu bind request\n"
                 "srun: error: Application launch failed: Unable to satisfy cpu bind request\n"
                 "srun: Job step aborted\n"),
            "srun failed: srun: error: CPU binding outside of job step allocation, allocated CPUs are: 0x3; srun: "
            "error: Task launch for StepId=2.1 failed on node n1: Unable to satisfy cpu bind request");
  EXPECT_EQ(said("one\nsrun: Job step aborted\n"), "srun failed: one");
  EXPECT_EQ(said("one\n"), "srun failed: one");
  EXPECT_EQ(said(""), "srun failed: it says nothing");
}

// A step against the nodes of its site; masks are compared where each GPU has a task alone.
TEST(SlurmVerify, ARequestIsJudgedBySite) {
  const auto site =
      parse_site("name = \"x\"\n[node]\ngpus = 2\ncpus = 16\n[[gpu]]\ncpus = \"8-15\"\n[[gpu]]\ncpus = \"0-7\"\n", "x");
  struct Row {
    std::vector<std::string> options;
    std::string expected;  // of the only finding; empty: none
  };
  const std::vector<Row> rows = {
      {{"-n2", "--gpus-per-node=2", "-c8"}, ""},
      {{"-n3", "--gpus-per-task=1"}, "3 GPUs on each node are asked for, but a node of x has 2"},
      {{"-n6", "-N3", "--gpus-per-task=1"}, ""},
      {{"-n2", "--gres=gpu:2", "-c9"}, "18 CPUs on each node are asked for, but a job can have 16"},
      {{"-n99"}, ""},
      {{"-n2", "--gpus-per-node=2", "--cpu-bind=mask_cpu:0xf000,0xf0"}, ""},
      {{"-n2", "--gpus-per-node=2", "--cpu-bind=v,mask_cpu:0xff00,0xff00"},
       "the mask of task 1 is 0xff00, but GPU 1 of x is close to the CPUs 0-7"},
      {{"-n1", "--gpus-per-node=1", "--cpu-bind=mask_cpu:0xff"}, ""},
  };
  for (const auto& [options, expected] : rows) {
    const auto findings = judge(read_step_request(options, {}, {}), site);
    ASSERT_THAT(findings, SizeIs(expected.empty() ? 0 : 1)) << testing::PrintToString(options);
    if (!findings.empty()) {
      EXPECT_THAT(findings[0].text, HasSubstr(expected));
    }
  }
}

// Sixteen ranks measure at once, and must not be killed for their memory: that would lose the findings.
TEST(SlurmVerify, MeasuringTakesAPartOfTheMemory) {
  constexpr int64_t kMiB = 1 << 20, kGiB = 1 << 30;
  EXPECT_EQ(buffer_bytes(512 * kGiB, 16, 32), 64 * kMiB);
  EXPECT_EQ(buffer_bytes(8 * kGiB, 1, 32), 32 * kMiB);
  EXPECT_EQ(buffer_bytes(8 * kGiB, 16, 2), 32 * kMiB);
  EXPECT_EQ(buffer_bytes(0, 16, 32), kMiB);
}

// srun may print parts of several tasks by turns, if these are whole lines.
TEST(SlurmVerify, LinesOfTasksMayBeMixed) {
  std::string mixed = "a line of the site's prolog\n";
  std::vector<std::vector<std::string_view>> lines;
  std::vector<std::string> texts;
  for (const int64_t rank : {1, 0}) {
    TaskSeen task{.rank = rank};
    task.cgroup = std::string(3000, 'x');
    texts.push_back(task_lines(task));
  }
  for (const auto& text : texts) lines.push_back(lines_of(text));
  for (size_t i = 0; i < lines[0].size(); ++i) {
    for (const auto& task : lines) {
      EXPECT_LT(task[i].size(), 1000U);
      mixed += std::string(task[i]) + "\n";
    }
  }
  std::string labelled;  // by srun --label or SLURM_LABELIO
  for (const auto line : lines_of(mixed)) labelled += " 0: " + std::string(line) + "\n";
  EXPECT_EQ(tasks_in(labelled), tasks_in(mixed));
  const auto tasks = tasks_in(mixed);
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_EQ(tasks[0].rank, 0);
  EXPECT_EQ(tasks[1].rank, 1);
  EXPECT_EQ(tasks[1].cgroup.size(), 3000U);
  EXPECT_THROW(tasks_in(texts[0].substr(0, texts[0].find('\n') + 1)), Error);
}

}  // namespace
}  // namespace yoke::slurm

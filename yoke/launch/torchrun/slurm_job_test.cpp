#include "yoke/launch/torchrun/slurm_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::launch {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

/// The batch script of a job on two nodes, as Slurm 22.05 sets its variables.
Environment batch(std::initializer_list<std::pair<const char*, const char*>> more = {}) {
  Environment result{{"SLURM_JOB_ID", "7"},        {"SLURM_JOB_NODELIST", "n[1-2]"},
                     {"SLURM_JOB_NUM_NODES", "2"}, {"SLURM_TASKS_PER_NODE", "1(x2)"},
                     {"SLURM_NODEID", "0"},        {"SLURM_PROCID", "0"},
                     {"SLURMD_NODENAME", "n1"}};
  for (const auto& [name, value] : more) result.set(name, value);
  return result;
}

TEST(SlurmJob, ABatchScriptOnSeveralNodesStartsOneStep) {
  const auto step = slurm_step_for({}, batch());
  ASSERT_TRUE(step);
  EXPECT_EQ(step->nodes, (std::vector<std::string>{"n1", "n2"}));
  EXPECT_EQ(step->srun.front(), "srun");
  EXPECT_THAT(step->srun, Contains("--nodes=2"));
  EXPECT_THAT(step->srun, Contains("--ntasks-per-node=1"));
  EXPECT_THAT(step->srun, Contains("--cpu-bind=none"));
  EXPECT_THAT(step->srun, Contains("--wait=40"));
  EXPECT_THAT(step->srun, Not(Contains(HasSubstr("--gpus"))));
  EXPECT_THAT(step->srun, Not(Contains("--no-kill")));
}

TEST(SlurmJob, AStepWithSparesOutlivesALostLauncher) {
  const auto step = slurm_step_for({.spares = 1}, batch());
  ASSERT_TRUE(step);
  EXPECT_THAT(step->srun, Contains("--wait=0"));
  EXPECT_THAT(step->srun, Contains("--no-kill"));
}

// Slurm signals only steps, so without one the ranks of a batch script would get no signal.
TEST(SlurmJob, ABatchScriptOnOneNodeStartsOneStepToo) {
  const auto one = batch({{"ENVIRONMENT", "BATCH"}, {"SLURM_JOB_NUM_NODES", "1"}, {"SLURM_JOB_NODELIST", "n1"}});
  const auto step = slurm_step_for({}, one);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->nodes, std::vector<std::string>{"n1"});
  EXPECT_THAT(step->srun, Contains("--nodes=1"));
  EXPECT_TRUE(step->may_run_here);
  EXPECT_EQ(step->environment.find("SLURM_OVERLAP"), "1");
  auto ranks = step->environment;
  restore_slurm_variables(ranks);
  EXPECT_FALSE(ranks.contains("SLURM_OVERLAP"));
  auto in_step = one;
  in_step.set("SLURM_STEP_ID", "0");
  EXPECT_FALSE(slurm_step_for({}, in_step));
  const auto several = slurm_step_for({}, batch({{"ENVIRONMENT", "BATCH"}}));
  EXPECT_FALSE(several->may_run_here);
  EXPECT_FALSE(several->environment.contains("SLURM_OVERLAP"));
}

TEST(SlurmJob, OtherPlacesStartNone) {
  const auto starts = [](const Environment& environment) { return slurm_step_for({}, environment).has_value(); };
  EXPECT_FALSE(starts({}));
  EXPECT_FALSE(starts(batch({{"SLURM_JOB_NUM_NODES", "1"}, {"SLURM_JOB_NODELIST", "n1"}})));
  EXPECT_FALSE(starts(batch({{"SLURM_STEP_ID", "0"}})));
  EXPECT_FALSE(starts(batch({{"OMPI_COMM_WORLD_RANK", "0"}})));
  EXPECT_FALSE(starts(batch({{"TORCHELASTIC_RUN_ID", "none"}}))) << "inside a rank";
  EXPECT_TRUE(starts(batch({{"SLURM_STEP_ID", "4294967290"}}))) << "salloc with an interactive step";
  auto login = batch({{"SLURM_JOB_NUM_NODES", "1"}, {"SLURM_JOB_NODELIST", "n1"}});
  login.erase("SLURMD_NODENAME");
  EXPECT_TRUE(starts(login)) << "the shell of salloc is on another host than the node";
}

TEST(SlurmJob, OptionsThatSayWhereToRunChangeNothing) {
  RunOptions options[5];
  options[0].standalone = true;
  options[1].nnodes = "2";
  options[2].hosts = "a,b";
  options[3].hostfile = "hosts";
  options[4].rdzv_endpoint = "a";
  for (const auto& one : options) EXPECT_FALSE(slurm_step_for(one, batch()));
}

// srun takes these variables as options: with SLURM_GPUS_PER_TASK=1 each launcher would have one GPU.
TEST(SlurmJob, TheStepHasAllGpusOfTheJob) {
  const auto asked = batch({{"SLURM_NTASKS", "5"},
                            {"SLURM_TASKS_PER_NODE", "4,1"},
                            {"SLURM_GPUS_PER_TASK", "a100:2"},
                            {"SLURM_CPUS_PER_TASK", "3"}});
  const auto step = slurm_step_for({}, asked);
  EXPECT_THAT(step->srun, Contains("--gpus=10"));
  for (const char* name : {"SLURM_NTASKS", "SLURM_TASKS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_CPUS_PER_TASK"}) {
    EXPECT_FALSE(step->environment.contains(name)) << name;
  }
  auto ranks = step->environment;
  ranks.set("SLURM_NTASKS", "2");  // srun sets it for its step
  restore_slurm_variables(ranks);
  EXPECT_EQ(ranks.find("SLURM_CPUS_PER_TASK"), "3");
  EXPECT_EQ(ranks.find("SLURM_NTASKS"), "2");
  for (const auto& variable : ranks.to_strings()) EXPECT_THAT(variable, Not(HasSubstr("YOKE_")));
  const auto newer = batch({{"SLURM_TASKS_PER_NODE", "4(x2)"}, {"SLURM_TRES_PER_TASK", "cpu=2,gres/gpu:1"}});
  EXPECT_THAT(slurm_step_for({}, newer)->srun, Contains("--gpus=8"));
}

TEST(SlurmJob, ItsGpusAreRanksOtherwiseItsTasks) {
  const auto ranks = [](const Environment& environment) { return ranks_of_slurm_node(environment)->num_ranks; };
  EXPECT_FALSE(ranks_of_slurm_node({}));
  EXPECT_FALSE(ranks_of_slurm_node(batch({{"OMPI_COMM_WORLD_RANK", "0"}})));
  EXPECT_EQ(ranks(batch()), 1);
  const auto in_step = [](const char* pmi_size) {
    return batch({{"SLURM_STEP_NUM_TASKS", "2"}, {"PMI_SIZE", pmi_size}, {"SLURM_GPUS_ON_NODE", "4"}});
  };
  EXPECT_EQ(ranks(in_step("2")), 4) << "srun --mpi=pmi2";
  EXPECT_FALSE(ranks_of_slurm_node(in_step("8"))) << "hydra";
  EXPECT_EQ(ranks(batch({{"SLURM_TASKS_PER_NODE", "16(x2)"}})), 1) << "the user asked for no tasks";
  EXPECT_EQ(ranks(batch({{"SLURM_GPUS_ON_NODE", "4"}, {"SLURM_NTASKS", "2"}})), 4);
  EXPECT_EQ(ranks(batch({{"SLURM_GPUS_ON_NODE", "4"}, {"CUDA_VISIBLE_DEVICES", "2,3"}})), 2);
  EXPECT_EQ(ranks(batch({{"SLURM_NTASKS", "5"}, {"SLURM_TASKS_PER_NODE", "4,1"}})), 4);
  auto second = slurm_step_for({}, batch({{"SLURM_NTASKS", "5"}, {"SLURM_TASKS_PER_NODE", "4,1"}}))->environment;
  second.set("SLURM_STEP_ID", "0");
  second.set("SLURM_TASKS_PER_NODE", "1(x2)");  // of the step
  second.set("SLURM_NODEID", "1");
  EXPECT_EQ(ranks(second), 1);
  second.set("SLURM_NODEID", "0");
  EXPECT_EQ(ranks(second), 4);
}

TEST(SlurmJob, BrokenVariablesAreNamed) {
  const auto refusal = [](const Environment& environment, ErrorCode code = ErrorCode::kFailedPrecondition) {
    return test::message_of([&] { slurm_step_for({}, environment); }, code);
  };
  auto broken = batch();
  broken.erase("SLURM_JOB_NODELIST");
  EXPECT_THAT(refusal(broken), HasSubstr("SLURM_JOB_NODELIST is not set"));
  EXPECT_THAT(refusal(batch({{"SLURM_JOB_NODELIST", "n[1-3]"}})), HasSubstr("names 3 nodes"));
  EXPECT_THAT(refusal(batch({{"SLURM_JOB_NODELIST", "n[1-"}}), ErrorCode::kInvalidArgument), HasSubstr("host list"));
}

TEST(SlurmJob, AHeterogeneousJobIsRefusedWithAdvice) {
  for (const char* name : {"SLURM_HET_SIZE", "SLURM_PACK_SIZE"}) {
    const auto job = batch({{name, "2"}, {"SLURM_JOB_NUM_NODES", "1"}, {"SLURM_JOB_NODELIST", "n1"}});
    EXPECT_THAT(test::message_of([&] { slurm_step_for({}, job); }, ErrorCode::kFailedPrecondition),
                HasSubstr("`srun --het-group=0-1 --ntasks-per-node=1 yoke run"))
        << name;
    auto task = job;
    task.set("SLURM_STEP_ID", "0");
    EXPECT_FALSE(slurm_step_for({}, task)) << name;
    RunOptions alone;
    alone.standalone = true;
    EXPECT_FALSE(slurm_step_for(alone, job)) << name;
  }
}

TEST(SlurmJob, TenThousandNodesAreRead) {
  const auto step = slurm_step_for({}, batch({{"SLURM_JOB_NODELIST", "n[0001-9990],r[1-2,07-08]-g[0-1],gpu[1-2]"},
                                              {"SLURM_JOB_NUM_NODES", "10000"},
                                              {"SLURM_NTASKS", "40000"},
                                              {"SLURM_TASKS_PER_NODE", "4(x10000)"}}));
  ASSERT_EQ(step->nodes.size(), 10'000U);
  EXPECT_EQ(step->nodes[9996], "r08-g0");
}

TEST(SlurmJob, WhatWasTakenIsSaid) {
  auto environment = batch();
  EXPECT_EQ(describe_slurm({}, 2, std::nullopt), std::nullopt);
  EXPECT_EQ(describe_slurm(environment, 1, std::nullopt), std::nullopt);
  environment.set("SLURM_STEP_ID", "0");
  environment.set("SLURM_STEP_NODELIST", "n[1-2]");
  EXPECT_EQ(describe_slurm(environment, 2, RanksOfNode{4, "one for each GPU of this node"}),
            "job 7.0 of Slurm: 2 nodes, n[1-2]; 4 ranks here, one for each GPU of this node");
}

}  // namespace
}  // namespace yoke::launch

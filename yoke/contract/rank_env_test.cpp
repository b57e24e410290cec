#include "yoke/contract/rank_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke {
namespace {

using testing::HasSubstr;

std::string message_of(const Environment& environment) {
  return test::message_of([&] { read_rank_env(environment); });
}

TEST(RankEnv, NothingSetIsOneRank) {
  const auto rank = read_rank_env(Environment{{"HOME", "/root"}});
  EXPECT_EQ(rank.source, RankSource::kNone);
  EXPECT_EQ(rank.rank, 0);
  EXPECT_EQ(rank.world_size, 1);
}

TEST(RankEnv, WhatIsWrittenIsRead) {
  RankEnv rank;
  rank.rank = 5;
  rank.world_size = 8;
  rank.local_rank = 1;
  rank.local_world_size = 4;
  rank.node_rank = 1;
  rank.num_nodes = 2;
  rank.master_addr = "10.0.0.7";
  rank.master_port = 4321;
  rank.agent_serves_store = true;
  rank.restart_count = 2;
  rank.max_restarts = 3;
  rank.run_id = "abc";
  Environment environment{{"YOKE_MASTER_LISTEN_FD", "9"}};
  write_rank_env(rank, environment);
  EXPECT_FALSE(environment.contains("YOKE_MASTER_LISTEN_FD")) << "only rank 0 inherits the socket";
  const auto read = read_rank_env(environment);
  EXPECT_EQ(read.source, RankSource::kTorchrun);
  EXPECT_EQ(read.rank, 5);
  EXPECT_EQ(read.world_size, 8);
  EXPECT_EQ(read.local_rank, 1);
  EXPECT_EQ(read.local_world_size, 4);
  EXPECT_EQ(read.node_rank, 1);
  EXPECT_EQ(read.num_nodes, 2);
  EXPECT_EQ(read.master_addr, "10.0.0.7");
  EXPECT_EQ(read.master_port, 4321);
  EXPECT_TRUE(read.agent_serves_store);
  EXPECT_EQ(read.restart_count, 2);
  EXPECT_EQ(read.max_restarts, 3);
  EXPECT_EQ(read.run_id, "abc");
}

TEST(RankEnv, TheSocketOfThePortGoesToRankZero) {
  RankEnv rank;
  rank.world_size = rank.local_world_size = 2;
  rank.master_port = 4321;
  rank.master_listen_fd = 7;
  Environment environment;
  write_rank_env(rank, environment);
  EXPECT_EQ(read_rank_env(environment).master_listen_fd, 7);
  environment.set("RANK", "1");
  environment.set("LOCAL_RANK", "1");
  EXPECT_EQ(read_rank_env(environment).master_listen_fd, std::nullopt);
}

TEST(RankEnv, MissingOrWrongVariablesAreNamed) {
  EXPECT_THAT(message_of(Environment{{"RANK", "0"}}), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(message_of(Environment{{"RANK", "0"}, {"WORLD_SIZE", "two"}}), HasSubstr("WORLD_SIZE='two'"));
  EXPECT_THAT(message_of(Environment{{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(message_of(Environment{{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}}),
              HasSubstr("rank 2 is not in a world of 2"));
  EXPECT_THAT(message_of(Environment{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "0"}}),
              HasSubstr("MASTER_PORT=0"));
  EXPECT_THAT(message_of(Environment{{"RANK", "0"},
                                     {"WORLD_SIZE", "2"},
                                     {"LOCAL_RANK", "3"},
                                     {"LOCAL_WORLD_SIZE", "2"},
                                     {"MASTER_ADDR", "h"},
                                     {"MASTER_PORT", "1"}}),
              HasSubstr("local rank 3 of 2"));
}

TEST(RankEnv, ReadsAnSrunStep) {
  const Environment environment{{"SLURM_PROCID", "5"},
                                {"SLURM_STEP_NUM_TASKS", "7"},
                                {"SLURM_LOCALID", "1"},
                                {"SLURM_NODEID", "2"},
                                {"SLURM_STEP_NUM_NODES", "4"},
                                {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                                {"SLURM_STEP_NODELIST", "nid[005123-005126]"},
                                {"SLURM_JOB_ID", "4711"},
                                {"SLURM_STEP_ID", "2"}};
  const auto rank = read_rank_env(environment);
  EXPECT_EQ(rank.source, RankSource::kSlurm);
  EXPECT_EQ(rank.rank, 5);
  EXPECT_EQ(rank.world_size, 7);
  EXPECT_EQ(rank.local_rank, 1);
  EXPECT_EQ(rank.local_world_size, 2);
  EXPECT_EQ(rank.node_rank, 2);
  EXPECT_EQ(rank.master_addr, "nid005123");
  EXPECT_GE(rank.master_port, 12'000);
  EXPECT_LT(rank.master_port, 30'000);

  auto other = environment;
  other.set("SLURM_STEP_ID", "3");
  EXPECT_NE(read_rank_env(other).master_port, rank.master_port) << "two steps of one job must not meet";
  other.set("MASTER_ADDR", "10.0.0.1");
  other.set("MASTER_PORT", "4444");
  EXPECT_EQ(read_rank_env(other).master_addr, "10.0.0.1");
  EXPECT_EQ(read_rank_env(other).master_port, 4444);
}

TEST(RankEnv, ABatchScriptIsNotARank) {
  const Environment environment{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "1"}};
  EXPECT_EQ(read_rank_env(environment).world_size, 1);
}

TEST(RankEnv, ReadsOpenMpi) {
  Environment environment{{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"PMIX_NAMESPACE", "1234567"}};
  const auto rank = read_rank_env(environment);
  EXPECT_EQ(rank.source, RankSource::kOpenMpi);
  EXPECT_EQ(rank.rank, 1);
  EXPECT_EQ(rank.master_addr, "127.0.0.1");
  EXPECT_NE(rank.master_port, 0);
  environment.set("OMPI_COMM_WORLD_SIZE", "4");
  EXPECT_THAT(message_of(environment), HasSubstr("MASTER_ADDR"));
}

// mpirun in a job of Slurm starts its daemons by srun, so ranks have the variables of that step too.
TEST(RankEnv, MpirunWinsInsideSlurm) {
  Environment environment{{"OMPI_COMM_WORLD_RANK", "3"},
                          {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"SLURM_STEP_NUM_TASKS", "1"},
                          {"SLURM_PROCID", "0"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_JOB_NODELIST", "n[07-08]"}};
  const auto rank = read_rank_env(environment);
  EXPECT_EQ(rank.source, RankSource::kOpenMpi);
  EXPECT_EQ(rank.rank, 3);
  EXPECT_EQ(rank.master_addr, "n07");
  const auto hydra = read_rank_env(Environment{{"PMI_RANK", "1"},
                                               {"PMI_SIZE", "2"},
                                               {"SLURM_STEP_NUM_TASKS", "1"},
                                               {"SLURM_PROCID", "0"},
                                               {"SLURM_LOCALID", "0"}});
  EXPECT_EQ(hydra.source, RankSource::kPmi);
  EXPECT_EQ(hydra.rank, 1);
  const auto pmi2 = read_rank_env(Environment{{"PMI_RANK", "1"},
                                              {"PMI_SIZE", "2"},
                                              {"SLURM_STEP_NUM_TASKS", "2"},
                                              {"SLURM_PROCID", "1"},
                                              {"SLURM_LOCALID", "1"}});
  EXPECT_EQ(pmi2.source, RankSource::kSlurm);
}

// The variables are those of flux-environment(7). No Flux was there to try them.
TEST(RankEnv, ReadsFlux) {
  Environment environment{{"FLUX_TASK_RANK", "5"},  {"FLUX_JOB_SIZE", "8"}, {"FLUX_TASK_LOCAL_ID", "1"},
                          {"FLUX_JOB_NNODES", "2"}, {"PMI_RANK", "5"},      {"PMI_SIZE", "8"},
                          {"FLUX_JOB_ID", "f2uZ"},  {"MASTER_ADDR", "a"}};
  const auto rank = read_rank_env(environment);
  EXPECT_EQ(rank.source, RankSource::kFlux);
  EXPECT_EQ(rank.rank, 5);
  EXPECT_EQ(rank.local_rank, 1);
  EXPECT_EQ(rank.local_world_size, 4);
  EXPECT_EQ(rank.node_rank, 1);
  EXPECT_EQ(rank.run_id, "f2uZ");
  EXPECT_NE(rank.master_port, 0);
  environment.set("FLUX_JOB_NNODES", "3");
  EXPECT_THAT(message_of(environment), HasSubstr("FLUX_JOB_SIZE=8"));
  environment.set("FLUX_JOB_NNODES", "2");
  environment.set("FLUX_JOB_SIZE", "0");
  EXPECT_THAT(message_of(environment), HasSubstr("FLUX_JOB_SIZE=0"));
  environment.set("FLUX_JOB_SIZE", "8");
  environment.erase("MASTER_ADDR");
  EXPECT_THAT(message_of(environment), HasSubstr("MASTER_ADDR"));
}

TEST(RankEnv, ReadsPmi) {
  const auto rank = read_rank_env(Environment{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  EXPECT_EQ(rank.source, RankSource::kPmi);
  EXPECT_EQ(rank.rank, 1);
  EXPECT_EQ(rank.local_rank, 1);
  EXPECT_EQ(rank.master_port, 29'500);
}

TEST(RankEnv, TorchrunWinsInsideSlurm) {
  const auto rank = read_rank_env(Environment{{"SLURM_STEP_NUM_TASKS", "1"},
                                              {"SLURM_PROCID", "0"},
                                              {"SLURM_LOCALID", "0"},
                                              {"RANK", "1"},
                                              {"WORLD_SIZE", "2"},
                                              {"MASTER_ADDR", "h"},
                                              {"MASTER_PORT", "29500"}});
  EXPECT_EQ(rank.source, RankSource::kTorchrun);
  EXPECT_EQ(rank.rank, 1);
}

}  // namespace
}  // namespace yoke

#include "yoke/launch/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/contract/rank_env.h"

namespace yoke::launch {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;
using testing::StartsWith;

LaunchSpec spec_of(int64_t num_ranks) {
  LaunchSpec spec;
  spec.argv = {"./train", "--gpu=${local_rank}", "$local_rank ${RANK}"};
  spec.environment = {{"HOME", "/home/u"}};
  spec.num_ranks = num_ranks;
  return spec;
}

/// A binding in which the ranks share eight CPUs, with one thread for each CPU.
NodeFacts facts_of(int64_t num_ranks) {
  NodeFacts facts{.place = {.world_size = num_ranks, .master_port = 1234}};
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    facts.binding.ranks.push_back({.num_threads = std::max<int64_t>(1, 8 / num_ranks)});
  }
  return facts;
}

std::vector<RankPlan> plan(const LaunchSpec& spec) { return plan(spec, facts_of(spec.num_ranks)); }

TEST(Plan, TheRankWithTheKeyboardIsInTheLaunchersProcessGroup) {
  auto facts = facts_of(2);
  for (const auto& rank : plan(spec_of(2), facts)) EXPECT_EQ(rank.process_group, 0) << "there is no terminal";
  facts.terminal_group = 4711;
  const auto ranks = plan(spec_of(2), facts);
  EXPECT_EQ(ranks[0].process_group, 4711);
  EXPECT_EQ(ranks[1].process_group, 0);
  facts.place.first_rank = 2;  // rank 0 is on another node
  for (const auto& rank : plan(spec_of(2), facts)) EXPECT_EQ(rank.process_group, 0);
}

// Oracle: read_rank_env(), with which a rank reads its environment, must return what was planned.
TEST(Plan, EveryRankReadsItsPlace) {
  const auto ranks = plan(spec_of(3));
  ASSERT_EQ(ranks.size(), 3u);
  for (int64_t rank = 0; rank < 3; ++rank) {
    Environment environment;
    for (const auto& variable : ranks[static_cast<size_t>(rank)].environment) {
      const auto equals = variable.find('=');
      environment.set(variable.substr(0, equals), variable.substr(equals + 1));
    }
    const auto place = read_rank_env(environment);
    EXPECT_EQ(place.source, RankSource::kTorchrun);
    EXPECT_EQ(place.rank, rank);
    EXPECT_EQ(place.local_rank, rank);
    EXPECT_EQ(place.world_size, 3);
    EXPECT_EQ(place.local_world_size, 3);
    EXPECT_EQ(place.num_nodes, 1);
    EXPECT_EQ(place.master_addr, "127.0.0.1");
    EXPECT_EQ(place.master_port, 1234);
    EXPECT_FALSE(place.agent_serves_store);
    EXPECT_EQ(ranks[static_cast<size_t>(rank)].holds_master_port, rank == 0);
    EXPECT_EQ(environment.find("HOME"), "/home/u");
    EXPECT_EQ(environment.find("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "1");
  }
}

TEST(Plan, OnlyRankZeroHasStandardInputAndTheSocket) {
  auto spec = spec_of(2);
  spec.inherited_fds = {11};
  const auto ranks = plan(spec);
  EXPECT_TRUE(ranks[0].inherits_stdin);
  EXPECT_FALSE(ranks[1].inherits_stdin);
  EXPECT_TRUE(ranks[0].holds_master_port);
  EXPECT_FALSE(ranks[1].holds_master_port);
  EXPECT_THAT(ranks[0].inherited_fds, ElementsAre(11));
  EXPECT_THAT(ranks[1].inherited_fds, ElementsAre(11));
}

TEST(Plan, SubstitutesTheLocalRankAndNothingElse) {
  const auto ranks = plan(spec_of(2));
  EXPECT_THAT(ranks[1].argv, ElementsAre("./train", "--gpu=1", "$local_rank ${RANK}"));
}

TEST(Plan, SharesTheProcessorsAmongSeveralRanks) {
  EXPECT_THAT(plan(spec_of(3))[0].environment, Contains("OMP_NUM_THREADS=2"));
  EXPECT_THAT(plan(spec_of(100))[0].environment, Contains("OMP_NUM_THREADS=1"));
  EXPECT_THAT(plan(spec_of(1))[0].environment, Not(Contains(StartsWith("OMP_NUM_THREADS="))));
  auto spec = spec_of(3);
  spec.environment.set("OMP_NUM_THREADS", "5");
  EXPECT_THAT(plan(spec)[0].environment, Contains("OMP_NUM_THREADS=5"));
}

TEST(Plan, LeftOversOfOtherJobsAreNotObeyed) {
  auto spec = spec_of(2);
  spec.environment = {{"MASTER_ADDR", "elsewhere"},
                      {"MASTER_PORT", "1"},
                      {"RANK", "77"},
                      {"YOKE_MASTER_LISTEN_FD", "3"},
                      {"TORCHELASTIC_ERROR_FILE", "/tmp/of-another"},
                      {"YOKE_TERMINAL", "1"}};
  const auto ranks = plan(spec);
  EXPECT_THAT(ranks[1].environment, Contains("MASTER_ADDR=127.0.0.1"));
  EXPECT_THAT(ranks[1].environment, Contains("MASTER_PORT=1234"));
  EXPECT_THAT(ranks[1].environment, Contains("RANK=1"));
  for (const auto* name : {"YOKE_MASTER_LISTEN_FD", "TORCHELASTIC_ERROR_FILE", "YOKE_TERMINAL"}) {
    EXPECT_THAT(ranks[1].environment, Not(Contains(StartsWith(name))));
  }
}

TEST(Plan, TheLauncherServesTheStoreOfSeveralRanks) {
  auto spec = spec_of(2);
  EXPECT_TRUE(launcher_serves_store(spec, 2, false));
  EXPECT_FALSE(launcher_serves_store(spec, 1, false));
  EXPECT_TRUE(launcher_serves_store(spec, 1, true)) << "an elastic job may grow";
  spec.environment.set("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1");
  EXPECT_FALSE(launcher_serves_store(spec, 2, true));
}

TEST(Plan, OneRankHasTheKeyboard) {
  auto spec = spec_of(3);
  auto facts = facts_of(3);
  facts.terminal_group = 4711;
  spec.keyboard_rank = 2;
  const auto ranks = plan(spec, facts);
  EXPECT_FALSE(ranks[0].inherits_stdin);
  EXPECT_TRUE(ranks[2].inherits_stdin);
  EXPECT_EQ(ranks[2].process_group, 4711);
  spec.keyboard_rank = 3;
  EXPECT_THROW(plan(spec, facts), Error);
  facts.place.is_elastic = true;
  EXPECT_FALSE(plan(spec, facts)[2].inherits_stdin) << "a later start may have that rank";
}

TEST(Plan, PrefixesAsAsked) {
  auto spec = spec_of(2);
  EXPECT_EQ(plan(spec)[0].prefix, "[0] ");
  EXPECT_EQ(plan(spec)[1].prefix, "[1] ");
  spec.prefix = Prefix::kAllButRankZero;
  EXPECT_EQ(plan(spec)[0].prefix, "");
  EXPECT_EQ(plan(spec)[1].prefix, "[1] ");
  spec.prefix = Prefix::kNone;
  EXPECT_EQ(plan(spec)[1].prefix, "");
  EXPECT_TRUE(plan(spec)[0].out.is_piped());
  EXPECT_EQ(plan(spec_of(1))[0].prefix, "");
  EXPECT_TRUE(plan(spec_of(1))[0].out.is_own);
  EXPECT_FALSE(plan(spec_of(1))[0].err.is_piped());
  spec.logs.prefix_template = "[${role_name}${local_rank}/${rank}]:";
  EXPECT_EQ(plan(spec)[1].prefix, "[default1/1]:");
  auto facts = facts_of(2);
  facts.host = "r12i0n8";
  spec.logs.prefix_template = "${hostname}:$rank$$ $hostnames ${host}";
  EXPECT_EQ(plan(spec, facts)[1].prefix, "r12i0n8:1$ $hostnames ${host}");
}

// The form of the output must not depend on the present number of nodes.
TEST(Plan, AnElasticJobPrintsAlikeWithAnyNumberOfRanks) {
  for (const int64_t num_ranks : {1, 2}) {
    auto facts = facts_of(num_ranks);
    facts.place.is_elastic = true;
    const auto rank = plan(spec_of(num_ranks), facts)[0];
    EXPECT_EQ(rank.prefix, "[0] ") << num_ranks;
    EXPECT_TRUE(rank.out.is_piped() && rank.err.is_piped()) << num_ranks;
  }
}

TEST(Plan, SendsStreamsWhereTheyAreWanted) {
  auto spec = spec_of(3);
  spec.logs.redirects = StreamChoice("0:3");
  spec.logs.tee = StreamChoice("1:1");
  spec.logs.shown_local_ranks = {0, 1};
  spec.logs.out_filters = {"loss"};
  auto facts = facts_of(3);
  facts.log_folder = "/logs/none_1/attempt_0";
  const auto ranks = plan(spec, facts);
  using To = StreamPlan::To;
  EXPECT_EQ(ranks[0].out, (StreamPlan{.to = To::kNowhere, .file = "/logs/none_1/attempt_0/0/stdout.log"}));
  EXPECT_EQ(ranks[0].err, (StreamPlan{.to = To::kNowhere, .file = "/logs/none_1/attempt_0/0/stderr.log"}));
  EXPECT_EQ(ranks[1].out, (StreamPlan{.file = "/logs/none_1/attempt_0/1/stdout.log", .is_filtered = true}));
  EXPECT_EQ(ranks[1].err, StreamPlan{});
  EXPECT_EQ(ranks[2].out, (StreamPlan{.to = To::kNowhere})) << "filtered out";
  EXPECT_EQ(ranks[1].error_file, "/logs/none_1/attempt_0/1/error.json");
  EXPECT_THAT(ranks[1].environment, Contains("TORCHELASTIC_ERROR_FILE=/logs/none_1/attempt_0/1/error.json"));
}

TEST(Plan, ErrorFilesNeedNoLogs) {
  auto facts = facts_of(2);
  facts.error_folder = "/tmp/yoke-run-1";
  facts.place.restart_count = 2;
  const auto ranks = plan(spec_of(2), facts);
  EXPECT_THAT(ranks[1].environment, Contains("TORCHELASTIC_ERROR_FILE=/tmp/yoke-run-1/attempt_2_rank_1.json"));
  EXPECT_THAT(ranks[1].environment, Contains("TORCHELASTIC_RESTART_COUNT=2"));
  EXPECT_TRUE(ranks[1].out.file.empty());
}

TEST(Plan, KeptStatesAreNotAmongTheLogs) {
  auto facts = facts_of(2);
  facts.log_folder = "/logs/none_1/attempt_0";
  auto spec = spec_of(2);
  spec.replacements = 3;
  EXPECT_EQ(plan(spec, facts)[1].state_file, "/logs/none_1/attempt_0/1/error.json.state") << "there is no other folder";
  facts.error_folder = "/tmp/yoke-run-1";
  EXPECT_EQ(plan(spec, facts)[1].state_file, "/tmp/yoke-run-1/attempt_0_rank_1.json.state");
  EXPECT_EQ(plan(spec, facts)[1].error_file, "/logs/none_1/attempt_0/1/error.json");
}

TEST(Plan, EachRankMaySeeOneGpuAlone) {
  auto spec = spec_of(2);
  spec.virtual_local_rank = true;
  EXPECT_THAT(plan(spec)[1].environment, AllOf(Contains("LOCAL_RANK=0"), Contains("CUDA_VISIBLE_DEVICES=1")));
  spec.environment.set("CUDA_VISIBLE_DEVICES", "GPU-7,4");
  EXPECT_THAT(plan(spec)[0].environment, Contains("CUDA_VISIBLE_DEVICES=GPU-7"));
  EXPECT_THAT(plan(spec)[1].environment, Contains("CUDA_VISIBLE_DEVICES=4"));
  spec.environment.set("HIP_VISIBLE_DEVICES", "");
  EXPECT_THAT(plan(spec)[1].environment, AllOf(Contains("CUDA_VISIBLE_DEVICES=4"), Contains("HIP_VISIBLE_DEVICES=")));
  spec.environment.set("HIP_VISIBLE_DEVICES", "2, 6");  // hides GPUs from CUDA_VISIBLE_DEVICES
  EXPECT_THAT(plan(spec)[1].environment, AllOf(Contains("CUDA_VISIBLE_DEVICES=6"), Contains("HIP_VISIBLE_DEVICES=6")));
  spec.num_ranks = 3;
  EXPECT_THROW(plan(spec), Error);
}

TEST(Plan, BindsWhatIsToBeBound) {
  auto facts = facts_of(2);
  facts.binding.ranks[1] = {.cpus = {4, 5}, .memory_nodes = {1}, .num_threads = 2};
  EXPECT_TRUE(plan(spec_of(2), facts)[1].cpus.empty());
  facts.binding.is_bound = true;
  const auto ranks = plan(spec_of(2), facts);
  EXPECT_EQ(ranks[1].cpus, (CpuSet{4, 5}));
  EXPECT_EQ(ranks[1].memory_nodes, CpuSet{1});
  EXPECT_THAT(ranks[1].environment, Contains("OMP_NUM_THREADS=2"));
}

TEST(Plan, RefusesWhatCannotBeStarted) {
  EXPECT_THROW(plan(spec_of(0)), Error);
  EXPECT_THROW(plan(LaunchSpec{}), Error);
}

}  // namespace
}  // namespace yoke::launch

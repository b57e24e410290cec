#include "yoke/launch/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/base/rank_env.h"

namespace yoke::launch {
namespace {

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

constexpr NodeFacts kFacts{.num_cpus = 8, .master_port = 1234, .master_listen_fd = 7};

// Oracle: the other half of the contract reads what was planned.
TEST(Plan, EveryRankReadsItsPlace) {
  const auto ranks = plan(spec_of(3), kFacts);
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
    EXPECT_EQ(place.master_listen_fd, rank == 0 ? std::optional<int>(7) : std::nullopt);
    EXPECT_EQ(environment.find("HOME"), "/home/u");
    EXPECT_EQ(environment.find("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "1");
  }
}

TEST(Plan, OnlyRankZeroHasStandardInputAndTheSocket) {
  auto spec = spec_of(2);
  spec.inherited_fds = {11};
  const auto ranks = plan(spec, kFacts);
  EXPECT_TRUE(ranks[0].inherits_stdin);
  EXPECT_FALSE(ranks[1].inherits_stdin);
  EXPECT_THAT(ranks[0].inherited_fds, ElementsAre(11, 7));
  EXPECT_THAT(ranks[1].inherited_fds, ElementsAre(11));
}

TEST(Plan, SubstitutesTheLocalRankAndNothingElse) {
  const auto ranks = plan(spec_of(2), kFacts);
  EXPECT_THAT(ranks[1].argv, ElementsAre("./train", "--gpu=1", "$local_rank ${RANK}"));
}

TEST(Plan, SharesTheProcessorsAmongSeveralRanks) {
  EXPECT_THAT(plan(spec_of(3), kFacts)[0].environment, Contains("OMP_NUM_THREADS=2"));
  EXPECT_THAT(plan(spec_of(100), kFacts)[0].environment, Contains("OMP_NUM_THREADS=1"));
  EXPECT_THAT(plan(spec_of(1), kFacts)[0].environment, Not(Contains(StartsWith("OMP_NUM_THREADS="))));
  auto spec = spec_of(3);
  spec.environment.set("OMP_NUM_THREADS", "5");
  EXPECT_THAT(plan(spec, kFacts)[0].environment, Contains("OMP_NUM_THREADS=5"));
}

TEST(Plan, LeftOversOfOtherJobsAreNotObeyed) {
  auto spec = spec_of(2);
  spec.environment = {{"MASTER_ADDR", "elsewhere"},
                      {"MASTER_PORT", "1"},
                      {"RANK", "77"},
                      {"YOKE_MASTER_LISTEN_FD", "3"},
                      {"TORCHELASTIC_ERROR_FILE", "/tmp/of-another"},
                      {"YOKE_TERMINAL", "1"}};
  const auto ranks = plan(spec, kFacts);
  EXPECT_THAT(ranks[1].environment, Contains("MASTER_ADDR=127.0.0.1"));
  EXPECT_THAT(ranks[1].environment, Contains("MASTER_PORT=1234"));
  EXPECT_THAT(ranks[1].environment, Contains("RANK=1"));
  for (const auto* name : {"YOKE_MASTER_LISTEN_FD", "TORCHELASTIC_ERROR_FILE", "YOKE_TERMINAL"}) {
    EXPECT_THAT(ranks[1].environment, Not(Contains(StartsWith(name))));
  }
}

TEST(Plan, PrefixesAsAsked) {
  auto spec = spec_of(2);
  EXPECT_EQ(plan(spec, kFacts)[0].prefix, "[0] ");
  EXPECT_EQ(plan(spec, kFacts)[1].prefix, "[1] ");
  spec.prefix = Prefix::kAllButRankZero;
  EXPECT_EQ(plan(spec, kFacts)[0].prefix, "");
  EXPECT_EQ(plan(spec, kFacts)[1].prefix, "[1] ");
  spec.prefix = Prefix::kNone;
  EXPECT_EQ(plan(spec, kFacts)[1].prefix, "");
  EXPECT_FALSE(plan(spec, kFacts)[0].inherits_output);
  EXPECT_EQ(plan(spec_of(1), kFacts)[0].prefix, "");
  EXPECT_TRUE(plan(spec_of(1), kFacts)[0].inherits_output);
}

TEST(Plan, RefusesWhatCannotBeStarted) {
  EXPECT_THROW(plan(spec_of(0), kFacts), Error);
  EXPECT_THROW(plan(LaunchSpec{}, kFacts), Error);
}

}  // namespace
}  // namespace yoke::launch

// Kills a rank on each of three hosts in network namespaces, in a training under `yoke run --replace` over ssh.
//
// Oracle: the same training without a kill. All that it has in the end has the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <random>
#include <string>
#include <tuple>

#include "tests/replace/ssh_hosts.h"
#include "tests/replace/training.h"

namespace yoke {
namespace {

using test::final_states;
using test::Network;
using test::program;
using test::TemporaryFolder;
using test::Training;
using test::Words;
using testing::HasSubstr;

constexpr int kNumHosts = 3, kRanksOfHost = 2, kNumRanksOfAll = kNumHosts * kRanksOfHost;

class ReplaceOverHosts : public test::SshHosts, public testing::WithParamInterface<test::ModeAndWay> {
 protected:
  ReplaceOverHosts() : SshHosts(kNumHosts, kRanksOfHost) {}
};

TEST_P(ReplaceOverHosts, AKillOnEachHostLeavesTheSameBits) {
  const auto& [mode, parallel] = GetParam();
  const int num_rounds = std::getenv("YOKE_LONG") != nullptr ? 334 : 1;
  const int num_steps = 20 + 15 * num_rounds;

  const TemporaryFolder expected;
  const auto undisturbed =
      Training(on_hosts({"--preload"}, program(mode, expected, num_steps, parallel, kWidth)), kNumRanksOfAll)
          .command()
          .wait();
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.err;

  const TemporaryFolder folder;
  const auto num_kills = std::to_string(num_rounds * kNumHosts);
  Training job(on_hosts({"--preload", "--replace", num_kills}, program(mode, folder, num_steps, parallel, kWidth)),
               kNumRanksOfAll);
  ASSERT_TRUE(job.wait_for_ranks()) << job.command().out() << job.command().err();
  std::mt19937 random(5);
  for (int number = 0; number < num_rounds * kNumHosts && job.steps().first < num_steps - 5; ++number) {
    const int rank = static_cast<int>(random() % kRanksOfHost) + number % kNumHosts * kRanksOfHost;
    const auto before = job.pids();
    usleep(random() % 3000);  // a random place in a step
    ASSERT_EQ(kill(before.at(rank), SIGKILL), 0) << job.command().out() << job.command().err();
    ASSERT_TRUE(job.wait_for_other(rank, before.at(rank))) << job.command().out() << job.command().err();
    for (const auto& [other, pid] : before) {
      if (other == rank) continue;
      EXPECT_EQ(job.pids()[other], pid) << "a survivor has another process";
    }
    ASSERT_TRUE(job.wait_for_steps(2)) << job.command().out() << job.command().err();
  }
  const auto result = job.command().wait(test::milliseconds(500'000));
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  for (int host = 0; host < kNumHosts; ++host) {
    EXPECT_THAT(result.err, HasSubstr(" on " + Network::address(host) + ") was killed by SIGKILL; starting it again"));
  }
  EXPECT_EQ(final_states(folder, kNumRanksOfAll), final_states(expected, kNumRanksOfAll));
  for (const auto& state : final_states(folder, kNumRanksOfAll)) EXPECT_GT(state.size(), 5'000u);
}

INSTANTIATE_TEST_SUITE_P(All, ReplaceOverHosts,
                         testing::Combine(testing::Values("run", "loop"),
                                          testing::Values("ddp", "recorded", "zero1", "fsdp")),
                         test::name_of_mode_and_way);

}  // namespace
}  // namespace yoke

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
using test::gated;
using test::let_run_to;
using test::Network;
using test::program;
using test::TemporaryFolder;
using test::Training;
using test::Words;
using testing::HasSubstr;

constexpr int kNumHosts = 3, kRanksOfHost = 2, kNumRanksOfAll = kNumHosts * kRanksOfHost;
constexpr int kStepsBeforeKills = 20, kStepsPerKill = 10;  // a whole number of epochs

class ReplaceOverHosts : public test::SshHosts, public testing::WithParamInterface<test::ModeAndWay> {
 protected:
  ReplaceOverHosts() : SshHosts(kNumHosts, kRanksOfHost) {}
};

TEST_P(ReplaceOverHosts, AKillOnEachHostLeavesTheSameBits) {
  const auto& [mode, parallel] = GetParam();
  const int num_kills = std::getenv("YOKE_LONG") != nullptr ? 1002 : kNumHosts;
  const int num_steps = kStepsBeforeKills + num_kills * kStepsPerKill;

  const TemporaryFolder expected;
  const auto undisturbed =
      Training(on_hosts({"--preload"}, program(mode, expected, num_steps, parallel, kWidth)), kNumRanksOfAll)
          .command()
          .wait(test::milliseconds(500'000));
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.err;

  const TemporaryFolder folder;
  Training job(on_hosts({"--preload", "--replace", std::to_string(num_kills)},
                        gated(program(mode, folder, num_steps, parallel, kWidth), kStepsBeforeKills, folder)),
               kNumRanksOfAll);
  ASSERT_TRUE(job.wait_for_ranks()) << job.command().out() << job.command().err();
  std::mt19937 random(5);
  for (int number = 0, step = kStepsBeforeKills; number < num_kills; ++number, step += kStepsPerKill) {
    ASSERT_TRUE(job.command().wait_until([&] { return job.steps().first >= step; }))
        << job.command().out() << job.command().err();
    const int rank = static_cast<int>(random() % kRanksOfHost) + number % kNumHosts * kRanksOfHost;
    const auto before = job.pids();
    let_run_to(step + kStepsPerKill, folder);
    usleep(random() % 30'000);  // clock: any moment will do, and a random place in these steps is wanted
    ASSERT_EQ(kill(before.at(rank), SIGKILL), 0) << job.command().out() << job.command().err();
    ASSERT_TRUE(job.wait_for_other(rank, before.at(rank))) << job.command().out() << job.command().err();
    for (const auto& [other, pid] : before) {
      if (other == rank) continue;
      EXPECT_EQ(job.pids()[other], pid) << "a survivor has another process";
    }
  }
  let_run_to(num_steps + 1, folder);
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

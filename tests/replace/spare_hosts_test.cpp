// Kills whole hosts of a training under `yoke run --replace --spares` over ssh: the agent, the guardian and all ranks
// of a network namespace at once. Spare hosts start the ranks again while the others go on.
//
// Oracle: the same training without a kill. All that it has in the end has the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <tuple>
#include <vector>

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

constexpr int kNumNodes = 3, kNumSpares = 2, kAllHosts = kNumNodes + kNumSpares, kRanksOfNode = 2;
constexpr int kAllRanks = kNumNodes * kRanksOfNode;
constexpr int kFirstSteps = 20, kStepsPerLoss = 20;

class SpareHosts : public test::SshHosts {
 protected:
  SpareHosts() : SshHosts(kAllHosts, kRanksOfNode) {}
  void SetUp() override {
    SshHosts::SetUp();
    if (!network_) return;
    for (int host = 0; host < kAllHosts; ++host) {
      const auto link = test::run({.argv = network_->on(host, {"readlink", "/proc/self/ns/net"})}).out;
      namespaces_.push_back(link.substr(0, link.find(']') + 1));
    }
  }

  /// What the job has started on a host.
  std::vector<pid_t> processes_on(int host) const {
    std::vector<pid_t> processes;
    for (const auto pid : test::processes_with_tag(tag_)) {
      std::error_code error;
      const auto link = std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/ns/net", error).string();
      if (link.substr(0, link.find(']') + 1) == namespaces_[static_cast<size_t>(host)]) processes.push_back(pid);
    }
    return processes;
  }
  /// All at once: an agent that lives longer than its guardian would tell of that.
  void kill_host(int host) const {
    const auto processes = processes_on(host);
    for (const int signal : {SIGSTOP, SIGKILL}) {
      for (const auto pid : processes) kill(pid, signal);
    }
  }
  /// Whether a host without ranks waits for the loss of another one: its agent has a guardian.
  bool has_spare(const std::array<int, kNumNodes>& hosts) const {
    for (int host = 0; host < kAllHosts; ++host) {
      if (std::find(hosts.begin(), hosts.end(), host) == hosts.end() && processes_on(host).size() >= 2) return true;
    }
    return false;
  }
  /// The host that took the place of another one last, in the messages of the launcher.
  static int last_spare(const std::string& err) {
    const std::string text = "the spare host 10.77.0.";
    const auto at = err.rfind(text);
    return at == err.npos ? -1 : std::stoi(err.substr(at + text.size())) - 1;
  }
  static size_t num_moves(const std::string& err) {
    size_t count = 0;
    for (auto at = err.find("takes its place, and starts"); at != err.npos; at = err.find("takes its place", at + 1)) {
      ++count;
    }
    return count;
  }

  void train_undisturbed(const Words& words) const {
    const auto result =
        Training(on_first(kNumNodes, {"--preload"}, words), kAllRanks).command().wait(test::milliseconds(500'000));
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  /// Waits until the launcher knows that all ranks keep states, and the spares are there.
  bool wait_until_replaceable(Training& job) const {
    const auto is_there = [&](int host) { return processes_on(host).size() >= 2; };
    const bool is_at_gate = job.command().wait_until(
        [&] { return job.steps().first >= kFirstSteps && is_there(kNumNodes) && is_there(kNumNodes + 1); });
    // clock: an agent tells the launcher once a second which ranks keep a state
    job.command().wait_until([] { return false; }, test::milliseconds(3000));
    return is_at_gate;
  }

  std::vector<std::string> namespaces_;
};

class SpareHostsOf : public SpareHosts, public testing::WithParamInterface<test::ModeAndWay> {};

TEST_P(SpareHostsOf, LostHostsLeaveTheSameBits) {
  const auto& [mode, parallel] = GetParam();
  const bool is_long = std::getenv("YOKE_LONG") != nullptr;
  const int num_kills = is_long ? 60 : 2;
  const int num_steps = kFirstSteps + num_kills * kStepsPerLoss;

  const TemporaryFolder expected;
  train_undisturbed(program(mode, expected, num_steps, parallel, kWidth));

  const TemporaryFolder folder;
  Training job(on_hosts({"--preload", "--spares", std::to_string(kNumSpares), "--replace",
                         std::to_string(num_kills * kRanksOfNode)},
                        gated(program(mode, folder, num_steps, parallel, kWidth), kFirstSteps, folder)),
               kAllRanks);
  auto& command = job.command();
  ASSERT_TRUE(wait_until_replaceable(job)) << command.out() << command.err();
  std::mt19937 random(7);
  std::array<int, kNumNodes> hosts = {0, 1, 2};
  for (int num_killed = 0, step = kFirstSteps; num_killed < num_kills; ++num_killed, step += kStepsPerLoss) {
    const auto node = 1 + random() % (kNumNodes - 1);  // the first host has the store
    ASSERT_TRUE(command.wait_until([&] { return has_spare(hosts); })) << command.err();
    const auto before = job.pids();
    let_run_to(step + kStepsPerLoss / 2, folder);
    usleep(random() % 50'000);  // clock: any moment will do, and a random place in these steps is wanted
    kill_host(hosts[node]);
    let_run_to(step + kStepsPerLoss, folder);
    const auto moves = static_cast<size_t>(num_killed) + 1;
    ASSERT_TRUE(command.wait_until([&] { return num_moves(command.err()) == moves; }))
        << command.out() << command.err();
    hosts[node] = last_spare(command.err());
    for (int rank = 0; rank < kAllRanks; ++rank) {
      const bool is_lost = rank / kRanksOfNode == static_cast<int>(node);
      if (!is_lost) continue;
      ASSERT_TRUE(job.wait_for_other(rank, before.at(rank))) << command.out() << command.err();
    }
    ASSERT_TRUE(command.wait_until([&] { return job.steps().first >= step + kStepsPerLoss; }))
        << command.out() << command.err();
    for (const auto& [rank, pid] : before) {
      if (rank / kRanksOfNode == static_cast<int>(node)) continue;
      EXPECT_EQ(job.pids()[rank], pid) << "a survivor has another process";
    }
  }
  let_run_to(num_steps + 1, folder);
  const auto result = command.wait(test::milliseconds(500'000));
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(final_states(folder, kAllRanks), final_states(expected, kAllRanks));
  for (const auto& state : final_states(folder, kAllRanks)) EXPECT_GT(state.size(), 30'000u);
}

INSTANTIATE_TEST_SUITE_P(All, SpareHostsOf,
                         testing::Combine(testing::Values("run", "loop"), testing::Values("ddp", "zero1", "fsdp")),
                         test::name_of_mode_and_way);

/// The copies of a rank are on the next host, so two neighbours at once are too many.
TEST_F(SpareHosts, TwoNeighboursAtOnceEndAllRanks) {
  const TemporaryFolder folder;
  Training job(on_hosts({"--spares", "2", "--replace", "9"},
                        gated(program("run", folder, 1'000'000, "ddp", kWidth), kFirstSteps, folder)),
               kAllRanks);
  ASSERT_TRUE(wait_until_replaceable(job)) << job.command().out() << job.command().err();
  let_run_to(1'000'000, folder);
  ASSERT_TRUE(job.wait_for_steps(3)) << job.command().out() << job.command().err();
  kill_host(1);
  kill_host(2);
  const auto result = job.command().wait();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err,
              HasSubstr("there is no state of one step that all ranks have kept, or another host for them"));
}

TEST_F(SpareHosts, TheFirstHostEndsAllRanks) {
  const TemporaryFolder folder;
  Training job(on_hosts({"--spares", "2", "--replace", "9"},
                        gated(program("loop", folder, 1'000'000, "ddp", kWidth), kFirstSteps, folder)),
               kAllRanks);
  ASSERT_TRUE(wait_until_replaceable(job)) << job.command().out() << job.command().err();
  let_run_to(1'000'000, folder);
  ASSERT_TRUE(job.wait_for_steps(3)) << job.command().out() << job.command().err();
  kill_host(0);
  const auto result = job.command().wait();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("lost host 10.77.0.1"));
}

/// Nothing closes the connections of the ranks to that host, and the host itself does not know that it is lost.
TEST_F(SpareHosts, AHostThatIsCutOffLeavesTheSameBits) {
  constexpr int kNumSteps = kFirstSteps + kStepsPerLoss;
  const TemporaryFolder expected, folder;
  train_undisturbed(program("run", expected, kNumSteps, "fsdp", kWidth));
  Training job(on_hosts({"--spares", "2", "--replace", "9", "--heartbeat-timeout", "8"},
                        gated(program("run", folder, kNumSteps, "fsdp", kWidth), kFirstSteps, folder)),
               kAllRanks);
  ASSERT_TRUE(wait_until_replaceable(job)) << job.command().out() << job.command().err();
  let_run_to(kFirstSteps + kStepsPerLoss / 2, folder);
  ASSERT_TRUE(job.wait_for_steps(3)) << job.command().out() << job.command().err();
  network_->cut(1);
  let_run_to(kNumSteps + 1, folder);
  const auto result = job.command().wait();
  network_->mend(1);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("lost host 10.77.0.2: it sent nothing for "));
  EXPECT_EQ(final_states(folder, kAllRanks), final_states(expected, kAllRanks));
}

/// The launcher gives a host up, but its ranks go on with the others until the ranks of the spare are there.
TEST_F(SpareHosts, AHostWhoseLauncherIsStoppedLeavesTheSameBits) {
  constexpr int kNumSteps = kFirstSteps + 4 * kStepsPerLoss;
  const TemporaryFolder expected, folder;
  train_undisturbed(program("run", expected, kNumSteps, "fsdp", kWidth));
  Training job(on_hosts({"--spares", "2", "--replace", "9", "--heartbeat-timeout", "3"},
                        gated(program("run", folder, kNumSteps, "fsdp", kWidth), kFirstSteps, folder)),
               kAllRanks);
  ASSERT_TRUE(wait_until_replaceable(job)) << job.command().out() << job.command().err();
  std::vector<pid_t> stopped;
  for (const auto pid : processes_on(1)) {
    const auto name = test::slurp("/proc/" + std::to_string(pid) + "/comm");
    if (name == "yoke\n" || name == "yoke-guardian\n") stopped.push_back(pid);
  }
  ASSERT_GE(stopped.size(), 2u);
  const auto before = job.pids();
  for (const auto pid : stopped) kill(pid, SIGSTOP);
  EXPECT_TRUE(job.command().wait_until([&] { return num_moves(job.command().err()) == 1; })) << job.command().err();
  let_run_to(kFirstSteps + kStepsPerLoss, folder);
  EXPECT_TRUE(job.wait_for_other(kRanksOfNode, before.at(kRanksOfNode))) << job.command().err();
  // The new ranks now ask the others to recover, who must not be at the end of the training by then.
  for (int step = kFirstSteps + kStepsPerLoss; step < kNumSteps; ++step) {
    let_run_to(step, folder);
    // clock: a slow training is wanted
    job.command().wait_until([] { return false; }, test::milliseconds(50));
  }
  let_run_to(kNumSteps + 1, folder);
  const auto result = job.command().wait();
  for (const auto pid : stopped) kill(pid, SIGCONT);
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(final_states(folder, kAllRanks), final_states(expected, kAllRanks));
}

}  // namespace
}  // namespace yoke

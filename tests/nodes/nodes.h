// tests/nodes/nodes.h -- jobs on several hosts, for tests/nodes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/nodes/network.h"

namespace yoke::test {

inline constexpr const char* kYoke = YOKE_COMMAND;

/// The --heartbeat-timeout of tests that cut off a host. It is so long that no other host is lost even on a busy
/// machine. heartbeat_test tests the timeout itself.
inline const char* const kSilence = kIsSanitized ? "20" : "8";
/// The limit for waiting until a job has reacted to a cut.
inline constexpr milliseconds kLong(120'000);

/// Four hosts, and a tag that identifies the processes of the job.
class Nodes : public testing::Test {
 protected:
  static constexpr int kNumHosts = 4;

  void SetUp() override {
    if (const auto why = Network::why_not(); !why.empty()) GTEST_SKIP() << why;
    network_ = std::make_unique<Network>(kNumHosts);
  }

  void TearDown() override {
    if (!network_) return;
    EXPECT_TRUE(wait_until([&] { return processes_with_tag(tag_).empty(); })) << "processes are left";
  }

  /// Starts `yoke run --nnodes ... WORDS` on a host, as one node of the job.
  std::unique_ptr<Command> join(int host, const std::vector<std::string>& words, const std::string& nnodes = "4",
                                bool with_rank = true) {
    std::vector<std::string> argv = {
        kYoke, "run", "--nnodes", nnodes, "--rdzv-endpoint", Network::address(0) + ":29400"};
    if (with_rank) argv.insert(argv.end(), {"--node-rank", std::to_string(host)});
    argv.insert(argv.end(), words.begin(), words.end());
    return std::make_unique<Command>(options(network_->on(host, argv)));
  }

  /// Starts `yoke run --hosts ... WORDS` on a machine that is not one of the hosts.
  std::unique_ptr<Command> over_ssh(const std::vector<std::string>& words) {
    std::string hosts;
    for (int host = 0; host < kNumHosts; ++host) hosts += (host > 0 ? "," : "") + Network::address(host);
    std::vector<std::string> argv = {kYoke, "run", "--hosts", hosts, "--ssh", network_->ssh()};
    argv.insert(argv.end(), words.begin(), words.end());
    return std::make_unique<Command>(options(network_->on(Network::kOutside, argv)));
  }

  CommandOptions options(std::vector<std::string> argv) const {
    auto environment = environment_;
    environment.insert(environment.end(), {{"YOKE_TEST_TAG", tag_}, {"YOKE_JOB_TOKEN", "a secret of these tests"}});
    return {.argv = std::move(argv), .environment = std::move(environment)};
  }

  /// Returns the script of every rank. When the script has started, it creates a file ATTEMPT.RANK.WORLD-SIZE. Rank 0
  /// exits with 3 when a file fail-ATTEMPT appears; every rank exits with 0 when a file `done` appears.
  std::string script() const {
    return "cd " + folder_.path() +
           "; a=$TORCHELASTIC_RESTART_COUNT; : > $a.$RANK.$WORLD_SIZE; while [ ! -e done ]; do sleep 0.05; "
           "[ $RANK = 0 ] && [ -e fail-$a ] && exit 3; done; exit 0";
  }

  /// Returns the number of connections between the host and the job's endpoint.
  size_t num_connections(int host) const {
    const auto result =
        run({.argv = network_->on(host, {"ss", "-H", "-t", "-n", "state", "established", "dport", "=", "29400"})});
    return static_cast<size_t>(std::count(result.out.begin(), result.out.end(), '\n'));
  }

  bool has_file(const std::string& name) const { return std::filesystem::exists(folder_.path(name)); }
  void make_file(const std::string& name) const { folder_.write(name, ""); }

  /// Whether all ranks of an attempt have started.
  bool runs(int attempt, int world_size) const {
    for (int rank = 0; rank < world_size; ++rank) {
      if (!has_file(std::to_string(attempt) + "." + std::to_string(rank) + "." + std::to_string(world_size))) {
        return false;
      }
    }
    return true;
  }

  /// From `attempt` on, makes each attempt fail until one has `world_size` ranks; reads the output of `command`. A test
  /// cannot see when a node has joined, because a node that joins while ranks run only takes part in the next attempt.
  bool restart_until(Command& command, int attempt, int world_size) {
    const auto has_begun = [&] {
      for (int ranks = 1; ranks <= kNumHosts; ++ranks) {
        if (runs(attempt, ranks)) return true;
      }
      return false;
    };
    for (const int last = attempt + 100; attempt < last; ++attempt) {
      if (!command.wait_until(has_begun, kLong)) return false;
      if (runs(attempt, world_size)) return true;
      make_file("fail-" + std::to_string(attempt));
      command.wait_until([] { return false; }, milliseconds(200));  // clock: the loop goes on until the node has joined
    }
    return false;
  }

  std::unique_ptr<Network> network_;
  const std::string tag_ = new_tag();
  std::vector<std::pair<std::string, std::string>> environment_;  ///< Further variables of the job.
  TemporaryFolder folder_;
};

/// Formats text like printf.
template <typename... Args>
std::string fmt(const char* format, Args... args) {
  char text[512];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

/// Returns the command line that runs a shell script as the program.
inline std::vector<std::string> shell(std::vector<std::string> options, const std::string& script) {
  options.insert(options.end(), {"--", "sh", "-c", script});
  return options;
}

}  // namespace yoke::test

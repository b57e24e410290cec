// Hosts that `yoke run` reaches over ssh: network namespaces of this machine.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/nodes/network.h"
#include "tests/replace/training.h"

namespace yoke::test {

class SshHosts : public testing::Test {
 protected:
  SshHosts(int num_hosts, int num_ranks_of_host) : num_hosts_(num_hosts), num_ranks_of_host_(num_ranks_of_host) {}

  void SetUp() override {
    if (const auto why = Network::why_not(); !why.empty()) GTEST_SKIP() << why;
    if (const auto why = Network::why_no_sshd(); !why.empty()) GTEST_SKIP() << why;
    network_ = std::make_unique<Network>(num_hosts_);
    network_->start_sshd(tag_);
  }
  void TearDown() override {
    if (!network_) return;
    EXPECT_TRUE(wait_until([&] { return processes_with_tag(tag_).empty(); })) << "processes are left";
  }

  /// `yoke run` on the first `num_hosts`.
  CommandOptions on_first(int num_hosts, const Words& options, const Words& program) const {
    std::string hosts;
    for (int host = 0; host < num_hosts; ++host) hosts += (host > 0 ? "," : "") + Network::address(host);
    Words argv = {YOKE_COMMAND, "run",           "--hosts", hosts,
                  "--ssh",      network_->ssh(), "-n",      std::to_string(num_ranks_of_host_)};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.emplace_back("--");
    argv.insert(argv.end(), program.begin(), program.end());
    return {.argv = network_->on(Network::kOutside, argv), .environment = {{"YOKE_TEST_TAG", tag_}}};
  }
  CommandOptions on_hosts(const Words& options, const Words& program) const {
    return on_first(num_hosts_, options, program);
  }

  /// Of the network: gradients of 45 KB, large enough to pass between the hosts in rounds.
  static constexpr int kWidth = 512;

  std::unique_ptr<Network> network_;
  const std::string tag_ = new_tag();

 private:
  const int num_hosts_, num_ranks_of_host_;
};

/// A mode of replace_program and a way of training.
using ModeAndWay = std::tuple<std::string, std::string>;
inline std::string name_of_mode_and_way(const testing::TestParamInfo<ModeAndWay>& one) {
  return std::get<0>(one.param) + "_" + std::get<1>(one.param);
}

}  // namespace yoke::test

// tests/mount/server.h -- a host with an sshd behind a network that can be cut, and a mount namespace for its clients.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/nodes/network.h"
#include "tests/support/command.h"

namespace yoke::test {

using Json = nlohmann::json;

constexpr uid_t kAda = 61'001, kBob = 61'002;

/// Mounts of the test are in a namespace of its own, and end with it. There, ada and bob have accounts, and /dev/fuse
/// is a device of the test.
class RemoteFolders : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// A command line on the client.
  std::vector<std::string> here(std::vector<std::string> argv, uid_t uid = 0) const;
  Result sh(const std::string& script, uid_t uid = 0) const { return run({.argv = here({"sh", "-c", script}, uid)}); }
  CommandOptions yoke(std::vector<std::string> words, uid_t uid = 0) const;
  /// Runs the command, and checks that it does not take longer than its --timeout.
  Result timed(std::vector<std::string> words, double timeout_s, uid_t uid = 0) const;

  /// Mounts the server's folder with options by which a lost server is noticed within 3 s.
  Result mount(uid_t uid = 0, std::vector<std::string> more = {}) const;
  /// Mounts it so that a stalled server blocks programs for ever.
  Result mount_without_keepalive() const {
    return timed({"mount", "server:" + data(), point(), "-F", config_of(0), "-o", "ServerAliveInterval=0"}, 20);
  }
  /// The mounts of the server's folder, as a user sees them.
  Json mounts(uid_t uid = 0, double timeout_s = 20) const;
  /// The state of the only mount, "none" without one.
  std::string state(double timeout_s = 20) const;
  std::string config_of(uid_t uid) const { return folder_.path("config" + std::to_string(uid)); }
  std::string point() const { return folder_.path("point"); }
  std::string data(const std::string& file = "") const {
    return folder_.path("data" + (file.empty() ? "" : "/" + file));
  }

  /// The processes that serve connections, without the sshd that accepts them.
  std::vector<pid_t> sessions() const;
  void signal_sessions(int number) const;
  /// Whether an sshfs of this test runs.
  bool has_sshfs() const { return !sh("pgrep -f '[s]shfs -f .*" + data() + "'").out.empty(); }

  TemporaryFolder folder_;
  std::string tag_ = new_tag();
  std::unique_ptr<Network> network_;
  std::unique_ptr<Command> namespace_;
};

}  // namespace yoke::test

// tests/nodes/network.h -- hosts for tests: network namespaces connected by a switch, each with an sshd.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/command.h"

namespace yoke::test {

/// Hosts 0 to N-1 have the addresses 10.77.0.1 to 10.77.0.N. The additional host kOutside has 10.77.0.254. All hosts
/// share files and processes. The hosts disappear when this process ends, even by SIGKILL.
class Network {
 public:
  static constexpr int kOutside = -1;

  explicit Network(int num_hosts);
  ~Network();

  /// Returns why this machine does not allow such a network; empty if it does.
  static std::string why_not();
  static std::string why_no_sshd();

  static std::string address(int host);
  /// Returns the command line that runs `argv` on a host.
  std::vector<std::string> on(int host, const std::vector<std::string>& argv) const;

  /// Processes that are started through ssh get `tag` as YOKE_TEST_TAG.
  void start_sshd(const std::string& tag);
  /// The sshd of a host. Its children serve the connections.
  pid_t sshd(int host) const { return sshds_.at(static_cast<size_t>(host))->pid(); }
  /// Returns the path of a configuration file for `ssh -F`.
  std::string ssh_config() const { return folder_.path("ssh_config"); }
  /// Returns the value for `yoke run --ssh`.
  std::string ssh() const { return "ssh -F " + ssh_config(); }

  /// Silently drops all packets from and to the host from now on.
  void cut(int host);
  void mend(int host);

  /// Returns the listening TCP sockets of a host, one line of ss(8) for each.
  std::vector<std::string> listening(int host) const;

 private:
  std::string port_of(int host) const;
  bool is_connected(int host) const;
  void in_switch(const std::string& words) const;

  TemporaryFolder folder_;
  std::unique_ptr<Command> switch_;
  std::vector<std::unique_ptr<Command>> hosts_, sshds_;
};

}  // namespace yoke::test

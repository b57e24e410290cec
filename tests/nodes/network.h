// tests/nodes/network.h -- hosts for tests: network namespaces on a separate switch, each with an sshd.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/command.h"

namespace yoke::test {

/// Hosts 0 to N-1 have the addresses 10.77.0.1 to 10.77.0.N; one more host, kOutside, has 10.77.0.254. They share files
/// and processes. They disappear when this process ends, even by SIGKILL.
class Network {
 public:
  static constexpr int kOutside = -1;

  explicit Network(int num_hosts);
  ~Network();

  /// Why this machine does not allow such a network; empty if it does.
  static std::string why_not();
  static std::string why_no_sshd();

  static std::string address(int host);
  /// The words that run `argv` on that host.
  std::vector<std::string> on(int host, const std::vector<std::string>& argv) const;

  /// `tag` becomes YOKE_TEST_TAG of the processes that are started through ssh.
  void start_sshd(const std::string& tag);
  /// The value for `yoke run --ssh`.
  std::string ssh() const { return "ssh -F " + folder_.path("ssh_config"); }

  /// From now on all packets from and to the host are dropped silently.
  void cut(int host);
  void mend(int host);

  /// The TCP sockets that listen on a host, one line of ss(8) each.
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

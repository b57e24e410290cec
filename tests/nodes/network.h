// tests/nodes/network.h -- hosts that are network namespaces on a switch of their own, with an sshd each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/command.h"

namespace yoke::test {

/// Hosts 0 to N-1 have addresses 10.77.0.1 to N, and one more, kOutside, has 10.77.0.254. They share files and
/// processes, and nothing of them is left once this process has ended, by SIGKILL too.
class Network {
 public:
  static constexpr int kOutside = -1;

  explicit Network(int num_hosts);
  ~Network();

  /// Why there can be no such network here; empty: there can.
  static std::string why_not();
  static std::string why_no_sshd();

  static std::string address(int host);
  /// The command on that host.
  std::vector<std::string> on(int host, const std::vector<std::string>& argv) const;

  /// `tag`: for YOKE_TEST_TAG of what is started through it.
  void start_sshd(const std::string& tag);
  /// For `yoke run --ssh`.
  std::string ssh() const { return "ssh -F " + folder_.path("ssh_config"); }

  /// From now on what the host sends and is sent is dropped, and nobody is told.
  void cut(int host);
  void mend(int host);

  /// Sockets that listen on a host; without `but_not_port`.
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

// yoke/cluster/ssh.h -- an agent on another host, by the user's own ssh.
#pragma once

#include <string>
#include <vector>

#include "yoke/launch/node/nodes.h"

namespace yoke::cluster {

struct SshOptions {
  std::vector<std::string> ssh = {"ssh"};  ///< The program, and options of the user's.
  std::string yoke;                        ///< Where yoke is on the other host.
};

/// The argument list: never asks for a password, and quotes for the shell at the other end, whichever it is.
std::vector<std::string> ssh_command(const SshOptions& options, const std::string& host);

/// Starts it, in a session of its own: Ctrl-C is for whoever started it. It is killed when the calling thread ends.
/// Errors  kUnavailable: no process. That ssh is not found is said by the agent's end, on its standard error.
launch::AgentProcess start_by_ssh(const SshOptions& options, const std::string& host);

}  // namespace yoke::cluster

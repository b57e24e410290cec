// yoke/cluster/ssh.h -- starts `yoke agent` on a different host with the user's ssh.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/launch/node/nodes.h"

namespace yoke::cluster {

struct SshOptions {
  std::vector<std::string> ssh = {"ssh"};  ///< The program and the user's options.
  std::string yoke;                        ///< The path of yoke on the remote host.
};

/// Returns the command line of ssh. ssh never asks for a password. The path is quoted for any shell on the remote host.
std::vector<std::string> ssh_command(const SshOptions& options, const std::string& host);

/// Starts ssh in a new session, so that Ctrl-C does not reach it. ssh is killed when the calling thread ends.
/// Errors  kUnavailable: no process can be started. If ssh is not found, the new process prints this on its standard
/// error and ends.
launch::AgentProcess start_by_ssh(const SshOptions& options, const std::string& host);

/// The same for any command that starts `yoke agent` on `host`, such as srun.
launch::AgentProcess start_by_command(const std::vector<std::string>& argv, const std::string& host,
                                      std::optional<std::vector<std::string>> environment = {});

}  // namespace yoke::cluster

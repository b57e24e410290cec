// yoke/cluster/exec.h -- runs one command on each of several nodes, to its end, whatever the others do.
//
// The caller's first message to `yoke agent` is {exec}: argv, environment, folder, silence_ms. Then it sends {signal},
// {ack}, and {close} when nobody reads a stream any more. The agent sends {output, err}, {failed} or {exit, signal};
// `signal` is one that the agent itself got.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/terminal.h"
#include "yoke/launch/node/channel.h"
#include "yoke/launch/node/nodes.h"

namespace yoke::cluster {

/// In the agent: runs the command as a child, with this process's environment and folder, and without input. Ends all
/// its descendants at the end, or when the caller is gone. Returns the exit status. REQUIRES: one thread.
int serve_exec(launch::Channel& channel, const std::vector<std::string>& argv);

struct ExecOptions {
  std::string name;  ///< Begins messages: "yoke exec".
  /// Whether each line begins with its node in brackets. Otherwise there is one node, and its output is printed as it
  /// is, byte by byte.
  bool has_prefixes = true;
  ColorMode color = ColorMode::kAuto;
  std::chrono::milliseconds silence{15'000};  ///< A node that is silent for this long is lost.
};

/// Runs the command of `request` (the value of {exec}) on all hosts at the same time. Passes SIGINT, SIGTERM, SIGHUP
/// and SIGQUIT on; the second one ends it at once. Returns the highest exit status of the commands, or that of
/// kUnavailable if a node is lost.
/// REQUIRES: one thread.
int exec_on_nodes(const std::vector<launch::Host>& hosts, const nlohmann::json& request, const ExecOptions& options,
                  const Environment& environment);

}  // namespace yoke::cluster

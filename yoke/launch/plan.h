// yoke/launch/plan.h -- from what the user said to what each process gets. Pure: touches nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/launch/spec.h"

namespace yoke::launch {

/// What must be known about this node.
struct NodeFacts {
  int64_t num_cpus = 1;        ///< That the ranks may use together.
  uint16_t master_port = 0;    ///< Already bound by the launcher.
  int master_listen_fd = -1;   ///< The bound socket.
  bool on_a_terminal = false;  ///< Whether the launcher's standard output is one.
};

/// One process, completely: supervisor and guardian add nothing to it.
struct RankPlan {
  int64_t rank = 0;
  std::vector<std::string> argv;
  std::vector<std::string> environment;  ///< "NAME=value"
  std::vector<int> inherited_fds;
  bool inherits_stdin = false;   ///< Else /dev/null.
  bool inherits_output = false;  ///< Else its output goes through the launcher, line by line.
  std::string prefix;            ///< Of its lines.
};

/// Errors  kInvalidArgument: no program, or no rank.
std::vector<RankPlan> plan(const LaunchSpec& spec, const NodeFacts& facts);

}  // namespace yoke::launch

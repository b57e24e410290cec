// yoke/launch/node/nodes.h -- describes a job on several nodes: how many there are, and how they find each other.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/node/membership.h"
#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// The standard streams of a `yoke agent` on another host. The agent ends when they are closed.
struct AgentProcess {
  UniqueFd in;     ///< The caller writes to the agent.
  UniqueFd out;    ///< The caller reads from the agent.
  UniqueFd err;    ///< Text for people, including the output of ssh and the login shell.
  pid_t pid = -1;  ///< The local process (ssh), a child of the caller.
};

/// A host on which the head starts an agent.
struct Host {
  std::string name;                  ///< The name in messages, unique among the hosts.
  std::optional<int64_t> num_ranks;  ///< If unset, the value of --nproc-per-node is used.
  /// Starts the agent. Errors  kUnavailable.
  std::function<AgentProcess()> start_agent;
};

/// One job on several nodes. The head decides for all of them. There are two forms: either the head is outside of the
/// nodes and starts agents on `hosts`, or it is part of one node, and the other nodes (started by hand, by srun or by
/// mpirun) connect to its endpoint.
struct NodesSpec {
  MembershipOptions membership;
  std::vector<Host> hosts;  ///< Empty if nodes connect to the endpoint. Spares are the last ones.
  std::string allocation;   ///< Slurm's job that holds `hosts`; empty if they are not of an allocation.

  std::string endpoint_host;  ///< A name or an address, as the user gave it.
  uint16_t endpoint_port = 0;
  /// Whether this node is the head. If unset, the node that has the endpoint's address and can take its port is the
  /// head.
  std::optional<bool> is_head;
  std::optional<int64_t> node_rank;        ///< The node rank that this node asks for.
  std::string local_addr;                  ///< The address at which others reach this node; if empty, its connection's.
  std::optional<std::string> master_addr;  ///< The address of the ranks' TCPStore; if unset, that of node 0.
  std::string token;                       ///< A secret that the nodes of the job share.

  std::chrono::milliseconds silence{15'000};  ///< A node that is silent for this long is lost.

  bool is_elastic() const { return membership.min_nodes < membership.max_nodes; }
  bool is_several() const { return !hosts.empty() || membership.max_nodes + membership.num_spares > 1; }
};

/// All that a launcher is told: what this node starts, and which nodes take part.
struct Launch {
  LaunchSpec spec;
  NodesSpec nodes;
};

}  // namespace yoke::launch

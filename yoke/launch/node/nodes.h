// yoke/launch/node/nodes.h -- how the nodes of a job find each other, and what the head asks of them.
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

namespace yoke::launch {

/// A program that was started on another host to be an agent there (`yoke agent`): its standard streams. Whoever holds
/// it ends it by closing them.
struct AgentProcess {
  UniqueFd in;     ///< To be written to.
  UniqueFd out;    ///< To be read from.
  UniqueFd err;    ///< What is said on the way there: text for people.
  pid_t pid = -1;  ///< Of the local end (ssh), a child of the caller.
};

/// A host that the head starts an agent on.
struct Host {
  std::string name;                  ///< For people, and to be told from others.
  std::optional<int64_t> num_ranks;  ///< Unset: as LaunchSpec::num_ranks_text says.
  /// Starts the agent. Errors  kUnavailable.
  std::function<AgentProcess()> start_agent;
};

/// One job on several nodes. The head decides for all; it is either outside of them and starts agents on `hosts`, or it
/// is one of them, and the others come to its endpoint by themselves (started by hand, by srun, by mpirun).
struct NodesSpec {
  MembershipOptions membership;
  std::vector<Host> hosts;  ///< Empty: nodes come to the endpoint.

  std::string endpoint_host;  ///< As it was given: a name or a number.
  uint16_t endpoint_port = 0;
  /// Unset: the node that has the endpoint's address, and finds its port free.
  std::optional<bool> is_head;
  std::optional<int64_t> node_rank;  ///< That this node asks for.
  std::string local_addr;            ///< Where other nodes reach this one; empty: where its connection comes from.
  std::optional<std::string> master_addr;  ///< Of the ranks' store; unset: of the node with rank 0.
  std::string token;                       ///< A secret that the nodes of the job share.

  std::chrono::milliseconds silence{15'000};  ///< After which a node that says nothing is lost.

  bool is_elastic() const { return membership.min_nodes < membership.max_nodes; }
  bool is_several() const { return !hosts.empty() || membership.max_nodes > 1; }
};

}  // namespace yoke::launch

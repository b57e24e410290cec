// yoke/cluster/reach.h -- how the agents on the nodes of a held allocation are started: over a connection to the
// resident agent of the node, or by srun where no connection is possible.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/cluster/allocation.h"
#include "yoke/launch/node/nodes.h"

namespace yoke::cluster {

/// A connection to a resident agent, where both sides have proved the secret; or why there is none.
struct Reached {
  enum class Kind {
    kConnected,
    kRefused,     ///< The node answers, but its resident agent does not run or has another secret.
    kUnreachable  ///< Nothing answered in time: the node is down, or a firewall is between.
  };
  Kind kind = Kind::kUnreachable;
  UniqueFd socket;
  std::string why;  ///< Empty if connected.
};

/// Connects to all `nodes` at the same time. The result has an element for each. Takes at most `limit`, and
/// once more that time for resolving the names of the nodes.
std::vector<Reached> reach(const Allocation& allocation, const std::vector<AllocationNode>& nodes,
                           std::chrono::milliseconds limit);

/// How long a command waits for nodes. A node in the same network answers within a millisecond.
inline constexpr std::chrono::milliseconds kReachTime{3000};

/// The standard streams of the agent that a resident agent has started for this connection.
launch::AgentProcess to_agent(UniqueFd socket);

/// The command line by which srun starts `yoke agent` on a node, inside the job and beside its other steps.
std::vector<std::string> srun_agent_command(const Allocation& allocation, const std::string& node);

/// The options by which srun starts one process on a node, with all devices and CPUs of the job there.
std::vector<std::string> srun_in_job(const std::string& job, const std::string& node);

enum class Transport { kResident, kSrun };

/// Returns the nodes as hosts of a job. `reached` are connections for their first agents; further ones are made when
/// they are needed. With kSrun, `reached` is not used.
std::vector<launch::Host> to_hosts(const Allocation& allocation, const std::vector<AllocationNode>& nodes,
                                   std::vector<Reached> reached, Transport transport);

}  // namespace yoke::cluster

// yoke/cluster/reach.h -- finds a held allocation, for commands that use it, and starts the agents on its nodes: over a
// connection to the resident agent of the node, or by srun where no connection is possible.
#pragma once

#include <string>
#include <vector>

#include "yoke/base/environment.h"
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

/// Connects to all `nodes` at the same time. The result has an element for each. Takes at most 3 s, and once more that
/// time for resolving the names of the nodes.
std::vector<Reached> reach(const Allocation& allocation, const std::vector<AllocationNode>& nodes);

/// The command line by which srun starts `yoke agent` on a node, inside the job and beside its other steps.
std::vector<std::string> srun_agent_command(const Allocation& allocation, const std::string& node);

/// The options by which srun starts one process on a node, with all devices and CPUs of the job there.
std::vector<std::string> srun_in_job(const std::string& job, const std::string& node);

enum class Transport { kResident, kSrun };

/// An allocation that can be used now.
struct OpenAllocation {
  Allocation allocation;
  Transport transport = Transport::kResident;
  std::vector<Reached> reached = {};  ///< With Transport::kResident: an element for each node.
  std::string note = {};              ///< Why srun is used although there are agents, for the user; empty if not.

  /// The nodes, or those with the given names, as hosts. Uses up the connections.
  /// Errors  kNotFound: a name is not that of a node.
  std::vector<launch::Host> take_hosts(const std::vector<std::string>& names = {});
};

/// Finds the allocation that `name` means and connects to its nodes. A Slurm job of this user that `yoke alloc` did not
/// make is used by srun; so is an allocation whose nodes cannot be reached from here. `yoke`: its path on the nodes of
/// such a job.
/// Errors  kNotFound: there is none, or it has ended, and why; kUnavailable: it still waits, and why, or neither its
/// nodes nor Slurm answer; kPermissionDenied: it belongs to a different user.
OpenAllocation open_allocation(const std::string& name, const std::string& yoke, const Environment& environment);

/// The same without connections, for commands that use srun.
Allocation find_allocation(const std::string& name, const std::string& yoke, const Environment& environment);

}  // namespace yoke::cluster

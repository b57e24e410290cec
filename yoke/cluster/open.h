// yoke/cluster/open.h -- finds a held allocation and connects to its nodes, for commands that use it.
#pragma once

#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/cluster/allocation.h"
#include "yoke/cluster/reach.h"

namespace yoke::cluster {

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

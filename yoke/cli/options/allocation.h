// yoke/cli/options/allocation.h -- the option --in of commands that use a held allocation, and how they reach its
// nodes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/cli/command.h"
#include "yoke/cluster/allocation.h"
#include "yoke/cluster/reach.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace yoke::cli {

/// Adds --in JOB. `name` must outlive the parsing.
CLI::Option* add_in_option(CLI::App& command, std::string& name);

/// An allocation that can be used now.
struct OpenAllocation {
  cluster::Allocation allocation;
  cluster::Transport transport = cluster::Transport::kResident;
  std::vector<cluster::Reached> reached;  ///< With Transport::kResident: an element for each node.

  /// The nodes, or those with the given names, as hosts. Uses up the connections.
  /// Errors  kNotFound: a name is not that of a node.
  std::vector<launch::Host> take_hosts(const std::vector<std::string>& names = {});
};

/// Finds the allocation that `name` means and connects to its nodes. A Slurm job of this user that `yoke alloc` did not
/// make is used by srun; so is an allocation whose nodes cannot be reached from here. Then a line on standard error
/// says so.
/// Errors  kNotFound: there is none, or it has ended, and why; kUnavailable: it still waits, and why, or neither its
/// nodes nor Slurm answer; kPermissionDenied: it belongs to a different user.
OpenAllocation open_allocation(const std::string& name, const Context& context);

/// The same without connections, for commands that use srun.
cluster::Allocation find_allocation(const std::string& name, const Context& context);

/// Why the allocation has ended, if Slurm says so; nullopt if it runs, or nothing is known. If `nodes_are_lost`, Slurm
/// is asked for 5 s or more until it says that the allocation does not run: the host that lost the connections to the
/// nodes may know of the end before slurmctld does.
std::optional<std::string> end_of_allocation(const std::string& job, bool nodes_are_lost, const Context& context);

}  // namespace yoke::cli

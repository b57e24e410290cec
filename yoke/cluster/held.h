// yoke/cli/frame/allocations.h -- the allocations that this user holds or waits for, with what Slurm says about them.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "yoke/cli/command.h"
#include "yoke/cluster/allocation.h"

namespace yoke::cli {

inline constexpr const char* kElsewhere = "elsewhere";  ///< The state of an allocation of another cluster.

struct HeldAllocation {
  cluster::Allocation allocation;
  std::string state;   ///< "held", "waiting", "ending", kElsewhere, or "unknown" if Slurm does not answer.
  std::string reason;  ///< Why it waits, or why nothing is known.
};

/// Asks Slurm about each allocation, and removes the files of those that have ended.
std::vector<HeldAllocation> held_allocations(const Context& context);

/// The form of `--json`: job, name, until and nodes. Unknown values are null.
nlohmann::ordered_json to_json(const cluster::Allocation& allocation);

/// Errors  kFailedPrecondition: the Slurm of this host is that of another cluster, where the job's id means another
/// job; those of slurm::ask().
void check_cluster(const cluster::Allocation& allocation, const Context& context);

/// Finds the allocation that `name` means (cluster/allocation.h). Asks Slurm only if several are meant, because some
/// may have ended or be of another cluster. Errors  those of choose_allocation().
cluster::Allocation choose_held(const std::string& name, const Context& context);

/// Cancels a job, unless it has ended. Errors  those of slurm::ask().
void cancel_job(const std::string& job, const Context& context);

/// Gives an allocation back, and waits for its end for at most `limit`.
/// Errors  those of slurm::ask(); kTimeout: the job has not ended in time.
void release_allocation(const cluster::Allocation& allocation, std::chrono::milliseconds limit, const Context& context);

}  // namespace yoke::cli

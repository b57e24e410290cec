// yoke/cluster/held.h -- the allocations that this user holds or waits for, with what Slurm says about them.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/cluster/allocation.h"

namespace yoke::cluster {

inline constexpr const char* kElsewhere = "elsewhere";  ///< The state of an allocation of another cluster.

struct HeldAllocation {
  Allocation allocation;
  std::string state;   ///< "held", "waiting", "ending", kElsewhere, or "unknown" if Slurm does not answer.
  std::string reason;  ///< Why it waits, or why nothing is known.
};

/// Asks Slurm about each allocation, and removes the files of those that have ended.
std::vector<HeldAllocation> held_allocations(const Environment& environment);

/// The form of `--json`: job, name, until and nodes. Unknown values are null.
nlohmann::ordered_json to_json(const Allocation& allocation);

/// Errors  kFailedPrecondition: the Slurm of this host is that of another cluster, where the job's id means another
/// job; those of slurm::ask().
void check_cluster(const Allocation& allocation, const Environment& environment);

/// Finds the allocation that `name` means (allocation.h). Asks Slurm only if several are meant, because some
/// may have ended or be of another cluster. Errors  those of choose_allocation().
Allocation choose_held(const std::string& name, const Environment& environment);

/// Why the allocation has ended, if Slurm says so; nullopt if it runs, or nothing is known. If `nodes_are_lost`, Slurm
/// is asked for 5 s or more until it says that the allocation does not run: the host that lost the connections to the
/// nodes may know of the end before slurmctld does.
std::optional<std::string> end_of_allocation(const std::string& job, bool nodes_are_lost,
                                             const Environment& environment);

/// "; what ... said is in FILE" of an allocation that has ended, or nothing.
std::string kept_log_text(const std::string& job, const Environment& environment);

/// Cancels a job, unless it has ended. Errors  those of slurm::ask().
void cancel_job(const std::string& job, const Environment& environment);

/// Gives an allocation back, and waits for its end for at most `limit`.
/// Errors  those of slurm::ask(); kTimeout: the job has not ended in time.
void release_allocation(const Allocation& allocation, std::chrono::milliseconds limit, const Environment& environment);

}  // namespace yoke::cluster

// yoke/cluster/allocation.h -- allocations of Slurm that are held for one job of `yoke run` after another, and the
// files by which a user's commands find them.
//
// An allocation has up to three files in ~/.local/state/yoke/alloc, which only its user can read: NAME.request.json,
// which `yoke alloc` writes after it has submitted the job; NAME.json, which the keeper in the allocation (resident.h)
// writes with the nodes and the secret; and NAME.log, what the keeper, the agents and srun say. The end of the
// allocation removes them. If its user has not released it, the log stays as JOB.CLUSTER.log for two weeks.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/environment.h"

namespace yoke::cluster {

struct AllocationNode {
  std::string name;     ///< Slurm's name of the node.
  std::string address;  ///< Slurm's NodeAddr: a name or an address.
  uint16_t port = 0;    ///< Where the node's resident agent listens; 0: there is none, and srun reaches the node.
  int64_t num_gpus = 0, num_cpus = 0;

  bool operator==(const AllocationNode&) const = default;
};

struct Allocation {
  std::string job;     ///< Slurm's id of the job; empty before it was submitted.
  std::string name;    ///< The name that the user gave, or empty.
  std::string secret;  ///< What resident agents and their callers prove to each other; empty before it has started.
  std::string yoke;    ///< The path of yoke on the nodes.
  std::vector<AllocationNode> nodes;  ///< Empty before it has started.
  int64_t until = 0;                  ///< When its time is over, in seconds since 1970; 0 if unknown.
  std::string cluster = {};           ///< ClusterName, because clusters may share a home; empty if unknown.
  std::filesystem::path file = {};    ///< Not part of the file's text.

  bool is_ready() const { return !nodes.empty(); }
  bool operator==(const Allocation&) const = default;
};

/// Checks a name that a user gives to an allocation. Errors  kInvalidArgument: it could be taken for a job's id or an
/// option, or has characters other than letters, digits, '.', '_' and '-'.
void check_allocation_name(std::string_view name);

std::string to_text(const Allocation& allocation);
/// Errors  kDataLoss: the text is not that of an allocation.
Allocation parse_allocation(std::string_view text);

/// Returns the allocation that `name` means: a job's id, a name, or "last" or nothing for the only one.
/// Errors  kNotFound; kInvalidArgument if several match; the message lists them.
const Allocation& choose_allocation(const std::vector<Allocation>& allocations, const std::string& name);

/// Errors  kNotFound: the allocation has no node of this name; the message lists its nodes.
void check_node(const Allocation& allocation, const std::string& name);

/// $XDG_STATE_HOME/yoke/alloc, or ~/.local/state/yoke/alloc. Errors  kFailedPrecondition if HOME is not set.
std::filesystem::path allocation_folder(const Environment& environment);

/// Makes the folder, for this user alone, and the name of a new file in it. Removes logs that were kept for two weeks.
/// Errors  as errno says; kPermissionDenied if the folder belongs to a different user.
std::filesystem::path new_allocation_file(const Environment& environment);

/// Replaces `allocation.file`. Only this user can read it. Errors  as errno says.
void write_allocation(const Allocation& allocation);

/// Reads one file. Returns nullopt if there is none. Errors  kFailedPrecondition: other users may read or write it, or
/// it is not this user's; kDataLoss.
std::optional<Allocation> read_allocation(const std::filesystem::path& file);

/// The file of the request that belongs to a file NAME.json, and its log.
std::filesystem::path request_file(const std::filesystem::path& file);
std::filesystem::path log_file(const std::filesystem::path& file);
/// Removes all files of an allocation that its user gives up. Allocation::file is any of its .json files.
void remove_allocation(const Allocation& allocation);
/// Removes the files of an allocation that has ended, but keeps its log, unless nothing is in it.
void end_allocation(const Allocation& allocation);
/// The log that end_allocation() has kept of the newest allocation with this job's id; nullopt if there is none.
std::optional<std::filesystem::path> kept_log(const std::string& job, const Environment& environment);

/// Reads all files of this user, ordered by job: each allocation once. Files that cannot be used are left out.
std::vector<Allocation> list_allocations(const Environment& environment);

}  // namespace yoke::cluster

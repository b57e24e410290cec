// yoke/slurm/job/holding.h -- requests an allocation that is held, and says why it waits and why it has ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/slurm/job/job.h"

namespace yoke::slurm {

/// The job's name if the user gives none.
inline constexpr const char* kHoldingName = "yoke-alloc";

/// What `yoke alloc` asks for.
struct HoldingRequest {
  int64_t num_nodes = 1;
  std::string time;  ///< As Slurm writes it: minutes, H:MM:SS or D-HH:MM:SS; empty: the partition's default.
  std::string name, partition, account, gpus_per_node;
  std::optional<int64_t> cpus_per_node;
  std::vector<std::string> more;     ///< Options of sbatch, as the user wrote them.
  std::vector<std::string> program;  ///< What holds the allocation. The allocation ends with it.
};

/// The command line of sbatch. It prints the job's id. Pure.
std::vector<std::string> request_command(const HoldingRequest& request);

/// Where an allocation is between its request and its end.
enum class Phase {
  kWaiting,  ///< In the queue, or its nodes are being prepared.
  kHeld,     ///< Its nodes are the user's, also while the job is suspended.
  kEnding,   ///< Slurm waits for processes on its nodes.
  kEnded
};
Phase phase_of(const Job& job);

/// When the job's time is over, in seconds since 1970; 0 if Slurm does not say.
int64_t end_of(const Job& job);

/// The name of the cluster whose slurmctld answers here. Errors  those of ask().
std::string cluster_name(const Environment& environment);

/// Asks Slurm about a job. Returns nullopt if Slurm does not know it (any more).
/// Errors  those of ask().
std::optional<Job> find_job(const std::string& id, const Environment& environment);

/// The number of waiting jobs of the same partition that have a higher priority, as far as this user may see them.
/// Errors  those of ask().
int64_t jobs_before(const Job& job, const Environment& environment);

/// Counts them in what `squeue --format=%i|%Q` prints. 0 if the job is not there. Pure.
int64_t count_before(std::string_view text, const std::string& job);

/// Why a job waits, in a sentence without a full stop: "it waits until enough nodes are free (Resources)". Pure.
std::string why_waiting(const std::string& reason);

/// Why a job that does not run any more has ended: "its time limit was reached (TIMEOUT)". Pure.
std::string why_ended(const Job& job);
/// The same. If a node of the job has failed, Slurm is asked which of its nodes are down: other nodes may lose the
/// job's processes first.
std::string why_ended(const Job& job, const Environment& environment);

/// `environment` without the variables of an outer job, which programs of Slurm would take for options. Keeps those
/// that say which cluster is asked, and how (SLURM_CONF, SLURM_CLUSTERS, SLURM_JWT, ...). Pure.
Environment without_outer_job(Environment environment);

/// Whether Slurm sets the variable for each step and node, so that the value of another host does not fit. Pure.
bool belongs_to_step(std::string_view name);

}  // namespace yoke::slurm

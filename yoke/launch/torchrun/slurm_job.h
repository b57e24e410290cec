// yoke/launch/torchrun/slurm_job.h -- what `yoke run` takes from a job of Slurm: its nodes, and the ranks of each.
// Pure functions of the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/launch/torchrun/options.h"

namespace yoke::launch {

struct RanksOfNode {
  int64_t num_ranks = 1;
  std::string because;  ///< Such as "one for each GPU that Slurm gave this node".
};

/// Returns the ranks of this node if -n was not given, or nullopt outside of Slurm's jobs: one for each GPU that Slurm
/// gave this node, otherwise one for each task of the job there, otherwise one. GPUs that CUDA_VISIBLE_DEVICES and
/// similar variables hide do not count.
std::optional<RanksOfNode> ranks_of_slurm_node(const Environment& environment);

/// Whether an option says on which nodes to run: --standalone, --nnodes, --node-rank, --hosts, --hostfile, --in or
/// --rdzv-endpoint.
bool says_where(const RunOptions& options);

/// A step of srun with a launcher on each node of a job.
struct SlurmStep {
  std::string job_id;
  std::vector<std::string> nodes;
  std::vector<std::string> srun;  ///< The command line, to which the program of each node is added.
  /// The environment of srun. srun reads many variables of the job as options, so they have other names in it.
  Environment environment;
  /// Whether the job has only this node, so that the ranks can also start without a step, where srun is missing (in a
  /// container). Then no signals of Slurm reach them.
  bool may_run_here = false;
};

/// Returns the step by which `yoke run` starts in a batch script and in the shell of salloc. Returns nullopt in a shell
/// of salloc on the only node of its job, if srun, mpirun or Flux started this process, or if an option says where to
/// run (--standalone, --nnodes, --hosts, ...).
/// Errors  kFailedPrecondition if variables of the job are missing or contradict each other, or if the job is
/// heterogeneous, because the step would have only its first component.
std::optional<SlurmStep> slurm_step_for(const RunOptions& options, const Environment& environment);

/// Gives the ranks of such a step the variables of the job that srun was not to read, and that the step does not set.
void restore_slurm_variables(Environment& environment);

/// Describes what was taken from Slurm, for one line to the user; nullopt outside of a job.
std::optional<std::string> describe_slurm(const Environment& environment, int64_t num_nodes,
                                          const std::optional<RanksOfNode>& ranks);

}  // namespace yoke::launch

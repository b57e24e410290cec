// yoke/cli/launch/slurm_step.h -- starts `yoke run` on each node of a job of Slurm, by one srun.
#pragma once

#include "yoke/cli/command.h"
#include "yoke/launch/torchrun/slurm_job.h"

namespace yoke::cli {

/// Becomes srun, which starts this command line on each node. The launchers find each other by the step's variables
/// and by a token that only this step has.
/// Returns if the job has only this node, and srun or Slurm's configuration is missing, as in a container; the ranks
/// then start without a step.
/// Errors  kNotFound, kUnavailable, kTimeout: srun is missing, or Slurm does not answer.
void become_slurm_step(const launch::SlurmStep& step, const launch::RunOptions& options, const Context& context);

/// Prints the nodes and the command line of srun, for --plan.
int show_slurm_step(const launch::SlurmStep& step, const launch::RunOptions& options, bool as_json, Context& context);

}  // namespace yoke::cli

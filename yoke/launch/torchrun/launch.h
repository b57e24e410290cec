// yoke/launch/torchrun/launch.h -- converts the options of `yoke run` into the launch of a job.
#pragma once

#include "yoke/launch/node/nodes.h"
#include "yoke/launch/torchrun/options.h"

namespace yoke::launch {

/// Takes the nodes from --hosts or --hostfile, from --nnodes, or from the variables of srun and mpirun. By default
/// there is one node. An agent leaves them to its head.
/// Errors  kInvalidArgument if an option has a wrong value, or options contradict each other; kFailedPrecondition if
/// there is no GPU, or no Python; those of Surroundings::list_hosts.
Launch to_launch(const RunOptions& options, const Surroundings& surroundings);

}  // namespace yoke::launch

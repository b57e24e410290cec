// yoke/launch/torchrun/nodes.h -- which nodes a job of `yoke run` has, and how they meet.
#pragma once

#include "yoke/launch/node/nodes.h"
#include "yoke/launch/plan/spec.h"
#include "yoke/launch/torchrun/options.h"

namespace yoke::launch {

/// The nodes by --hosts or --hostfile, by --nnodes, or by the variables of srun and mpirun; otherwise one node.
/// Completes `spec` by what all nodes have in common: the job's id and the address of the ranks' store.
/// Errors  kInvalidArgument: the value of an option, or options that contradict each other.
NodesSpec to_nodes(const RunOptions& options, const Surroundings& surroundings, LaunchSpec& spec);

}  // namespace yoke::launch

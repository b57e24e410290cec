// yoke/launch/torchrun/nodes.h -- which nodes a job of `yoke run` has, and how they find each other.
#pragma once

#include "yoke/launch/node/nodes.h"
#include "yoke/launch/plan/spec.h"
#include "yoke/launch/torchrun/options.h"

namespace yoke::launch {

/// Takes the nodes from --hosts or --hostfile, from --nnodes, or from the variables of srun and mpirun; by default
/// there is one node. Adds to `spec` the values that all nodes have in common: the job's id and the address of the
/// ranks' TCPStore.
/// Errors  kInvalidArgument: the value of an option, or options that contradict each other.
NodesSpec to_nodes(const RunOptions& options, const Surroundings& surroundings, LaunchSpec& spec);

}  // namespace yoke::launch

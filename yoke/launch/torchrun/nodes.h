// yoke/launch/torchrun/nodes.h -- determines the nodes of a job of `yoke run`, and how they find each other.
#pragma once

#include "yoke/launch/node/nodes.h"
#include "yoke/launch/plan/spec.h"
#include "yoke/launch/torchrun/options.h"

namespace yoke::launch {

/// Takes the nodes from --hosts or --hostfile, from --nnodes, or from the variables of srun and mpirun. By default
/// there is one node. Adds to `spec` the values that all nodes have in common: the job's id and the address of the
/// ranks' TCPStore.
/// Errors  kInvalidArgument if an option has a wrong value, or options contradict each other.
NodesSpec to_nodes(const RunOptions& options, const Surroundings& surroundings, LaunchSpec& spec);

}  // namespace yoke::launch

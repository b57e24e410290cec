// yoke/cli/run_nodes.h -- which nodes a job of `yoke run` has, and how they meet.
#pragma once

#include <string>
#include <vector>

#include "yoke/cli/command.h"
#include "yoke/cli/run_options.h"
#include "yoke/launch/node/nodes.h"

namespace yoke::cli {

/// By --hosts or --hostfile, by --nnodes, or by what srun and mpirun tell; else one node. Completes `spec` by what the
/// nodes have in common: the job's id, the address of the ranks' store.
/// Errors  kInvalidArgument: an option's value, or options that contradict each other.
launch::NodesSpec to_nodes(const RunOptions& options, const Context& context, launch::LaunchSpec& spec);

/// Errors  kInvalidArgument: naming the option.
int64_t to_number(const std::string& text, const char* option);

}  // namespace yoke::cli

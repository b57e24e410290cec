// yoke/launch/torchrun/spec.h -- converts the options of `yoke run` into the spec of one node.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/launch/plan/spec.h"
#include "yoke/launch/torchrun/options.h"
#include "yoke/launch/torchrun/slurm_job.h"

namespace yoke::launch {

/// What to_launch() (launch.h) knows before the nodes.
/// Errors  kInvalidArgument if an option has a wrong value; kFailedPrecondition if there is no GPU, or no Python.
LaunchSpec to_spec(const RunOptions& options, const Surroundings& surroundings);

/// Returns the ranks of this node if -n was not given and a scheduler started this process: those of Slurm, or under
/// mpirun and Flux one for each GPU. nullopt: -n decides, or nothing does.
std::optional<RanksOfNode> ranks_of_scheduler(const RunOptions& options, const Surroundings& surroundings);

/// Returns the time between asking ranks to stop and killing them: --grace or --shutdown-timeout, else the variable
/// TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else ten seconds.
/// Errors  kInvalidArgument if the two options differ, or the variable is not a number of seconds.
std::chrono::milliseconds grace_of(const RunOptions& options, const Environment& environment);

/// Returns sentences about variables that ask torchrun for a server which yoke does not have. In a rank of torchrun
/// there are none: there the variables are torchrun's own.
std::vector<std::string> describe_missing_servers(const Environment& environment);

/// Returns the command line of a rank. As in torchrun, modules and what else Python can run (`.py`, `.pyc`, `.pyz`, a
/// folder with a __main__.py) run in Python. `python` returns the interpreter, and is called only if one is needed.
/// Errors  kInvalidArgument if there is no program, or the options contradict each other.
std::vector<std::string> program_of(std::vector<std::string> words, const RunOptions& options,
                                    const std::function<std::string()>& python);

}  // namespace yoke::launch

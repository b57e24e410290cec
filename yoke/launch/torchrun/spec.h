// yoke/launch/torchrun/spec.h -- turns the options of `yoke run` into the spec of one node.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "yoke/launch/plan/spec.h"
#include "yoke/launch/torchrun/options.h"

namespace yoke::launch {

/// Errors  kInvalidArgument: the value of an option; kFailedPrecondition: there is no GPU, or no Python.
LaunchSpec to_spec(const RunOptions& options, const Surroundings& surroundings);

/// The command line of a rank. As in torchrun, Python runs a module and a script (`.py`). Pure except for `python`,
/// which is called if an interpreter is needed.
/// Errors  kInvalidArgument: there is no program, or the options contradict each other.
std::vector<std::string> program_of(std::vector<std::string> words, const RunOptions& options,
                                    const std::function<std::string()>& python);

}  // namespace yoke::launch

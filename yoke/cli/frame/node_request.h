// yoke/cli/frame/node_request.h -- what an agent on another host needs to run something as this shell would.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "yoke/base/environment.h"

namespace yoke::cli {

/// kOfSlurm: the agent is in a step of Slurm, whose variables and devices it keeps.
enum class ForNodes { kAny, kOfSlurm };

/// The variables that other hosts get: without those that describe a login or a host.
nlohmann::json environment_for_nodes(const Environment& environment, ForNodes nodes);

/// The folder in which all hosts start the program. Errors  kFailedPrecondition: it was removed.
std::string working_folder();

}  // namespace yoke::cli

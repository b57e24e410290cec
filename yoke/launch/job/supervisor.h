// yoke/launch/job/supervisor.h -- runs a job: its processes, signals and output. JobPolicy decides what to do.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "yoke/launch/node/nodes.h"
#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// Runs the ranks to their end, and starts them again if one fails and restarts are left. Returns the exit status of
/// the job: 0, or that of the first rank that failed (128+signal if a signal ended it), or 128+signal if the launcher
/// was told to stop, or 126 or 127 if the program cannot be run. Prints the reason on standard error, in one line.
///
/// Changes this process permanently, because it is expected to end afterwards: blocks the signals that are handled
/// here, raises RLIMIT_NOFILE, and becomes a child subreaper.
/// Errors  kFailedPrecondition: the limit of open files is too low. kUnavailable: there is no pipe, process or port
/// left. REQUIRES: one thread; descriptors 0, 1 and 2 are open.
int launch(const LaunchSpec& spec);

/// Runs a job on several nodes, as its head or as a node that connects to the head. `launch`: the message that
/// describes this job to `yoke agent` on NodesSpec::hosts.
int launch(const LaunchSpec& spec, const NodesSpec& nodes, const nlohmann::json& launch);

}  // namespace yoke::launch

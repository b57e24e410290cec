// yoke/launch/job/supervisor.h -- runs a job: its processes, signals and output. JobPolicy decides what to do.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "yoke/launch/node/nodes.h"

namespace yoke::launch {

/// Runs a job, or joins it as one of its nodes. Runs the ranks to their end, and starts them again if one fails and
/// restarts are left. `for_agents`: the message that describes this job to `yoke agent` on NodesSpec::hosts. Returns
/// the exit status of the job: 0, or that of the first rank that failed (128+signal if a signal ended it), or
/// 128+signal if the launcher was told to stop, or 126 or 127 if the program cannot be run. Prints the reason on
/// standard error, in one line.
///
/// Changes this process permanently, because it is expected to end afterwards: blocks the signals that are handled
/// here, raises RLIMIT_NOFILE, and becomes a child subreaper.
/// Errors  kFailedPrecondition: the limit of open files is too low. kUnavailable: there is no pipe, process or port
/// left. REQUIRES: one thread; descriptors 0, 1 and 2 are open.
int run_job(const Launch& launch, const nlohmann::json& for_agents);

}  // namespace yoke::launch

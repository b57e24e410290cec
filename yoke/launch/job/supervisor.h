// yoke/launch/job/supervisor.h -- runs a job: its processes, signals and output. What to do is decided by
// JobPolicy.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "yoke/launch/node/nodes.h"
#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// Runs the ranks to their end, again if one fails and restarts are left, and returns the exit status of the job: 0;
/// the code of the first rank that failed, 128+signal for a signal; 128+signal if the launcher was told to stop; 126 or
/// 127 if the program cannot be run. The reason is printed on standard error, in one line.
///
/// Blocks the signals that it handles for good, raises RLIMIT_NOFILE, and becomes a child subreaper: the process is
/// expected to end afterwards.
/// Errors  kFailedPrecondition: the limit of open files is too low. kUnavailable: no pipe, no process, no port.
/// REQUIRES: one thread; descriptors 0, 1 and 2 are open.
int launch(const LaunchSpec& spec);

/// The same on several nodes: as their head, or as one that comes to the head. `launch` is for agents on
/// NodesSpec::hosts: whatever their program understands as this job (`yoke agent`).
int launch(const LaunchSpec& spec, const NodesSpec& nodes, const nlohmann::json& launch);

}  // namespace yoke::launch

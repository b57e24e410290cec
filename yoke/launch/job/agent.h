// yoke/launch/job/agent.h -- a node that does what the head of the job says, on a host that is not the head's.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "yoke/launch/node/channel.h"
#include "yoke/launch/node/nodes.h"
#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// Serves the head at the other end of `channel` until the job is over: runs ranks of this host and sends what they
/// print. Returns the exit status. If the head is lost, the ranks are ended at once. REQUIRES: as launch().
int serve_head(const LaunchSpec& spec, Channel& channel);

/// A node that comes to the head's endpoint by itself, and shows what its ranks print on its own screen. Waits for the
/// head to be there; comes again after a cut, when the job may go on without it or start again.
/// Returns the exit status of the job. Errors  kTimeout, kUnavailable, kPermissionDenied: no head, or it refuses.
int join_job(const LaunchSpec& spec, const NodesSpec& nodes);

}  // namespace yoke::launch

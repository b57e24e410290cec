// yoke/launch/job/agent.h -- the launcher of a node that is not the head node. It does what the head node orders.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "yoke/launch/node/channel.h"
#include "yoke/launch/node/nodes.h"
#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// Serves the head at the other end of `channel` until the job is over: runs the ranks of this host and sends their
/// output. Returns the exit status. If the head is lost, the ranks are ended at once. REQUIRES: the same as launch().
int serve_head(const LaunchSpec& spec, Channel& channel);

/// Connects this node to the head's endpoint, and shows the output of its ranks on its own screen. Waits until there is
/// a head. If the connection is cut, it connects again, provided that the job may continue without this node or start
/// again. Returns the exit status of the job. Errors  kTimeout, kUnavailable, kPermissionDenied: there is no head, or
/// it refuses this node.
int join_job(const LaunchSpec& spec, const NodesSpec& nodes);

}  // namespace yoke::launch

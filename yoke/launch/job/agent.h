// yoke/launch/job/agent.h -- the launcher of a node that is not the head node. It carries out the head's orders.
#pragma once

#include "yoke/launch/node/channel.h"
#include "yoke/launch/node/nodes.h"
#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// Serves the head that is connected by `channel` until the job is over: runs the ranks of this host and sends their
/// output. Returns the exit status. If the head is lost, the ranks are killed at once. REQUIRES: the same as run_job().
int serve_head(const LaunchSpec& spec, Channel& channel);

/// Connects this node to the head's endpoint, and shows the output of its ranks on its own screen. Waits until a head
/// is there. If the connection is cut, connects again if the job may continue without this node or start again. Returns
/// the exit status of the job. Errors  those of connect_to_head() (rendezvous.h).
int join_job(const LaunchSpec& spec, const NodesSpec& nodes);

}  // namespace yoke::launch

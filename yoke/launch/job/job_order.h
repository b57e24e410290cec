// yoke/launch/job/job_order.h -- the orders that the job policy gives. The executor (supervisor.cpp) carries them out
// one after the other, and decides nothing.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "yoke/launch/plan/plan.h"
#include "yoke/launch/process/order.h"

namespace yoke::launch {

/// A new attempt begins, and the executor forgets the ranks of the attempt before.
struct BeginAttempt {
  int64_t num_ranks = 0;
  int64_t num_starts = 0;  ///< The number of starts before this one.
};
/// The node shall take a port for the ranks' TCPStore at `address`. It answers with kPrepared or kRefused.
struct PrepareNode {
  int node = 0;
  std::string address;
};
struct StartNode {
  int node = 0;
  Place place;
};
/// The node shall signal its processes, kill them, or end the store, according to `order`.
struct TellNode {
  int node = 0;
  Order order = Order::kNone;
  int signal = 0;
};
/// The node is dismissed, and its launcher or agent ends with this status.
struct EndNode {
  int node = 0;
  int exit_status = 0;
  std::string reason;  ///< The reason for the user of the node; empty if none is needed.
};
/// The node was lost, and the policy does not refer to it any more.
struct ForgetNode {
  int node = 0;
};
/// An agent shall be started on NodesSpec::hosts[host]; then on_agent_started() or on_agent_failed() is called.
struct StartAgent {
  size_t host = 0;
};
/// Prints a whole line for the user.
struct Say {
  std::string line;
};
/// Ranks of this attempt failed. Prints what is known about the failure.
struct ShowFailure {
  int64_t first_exited = 0;  ///< The rank that ended first, as far as the launcher knows.
};
/// A new attempt follows, so the failure of the last one is not reported as the job's.
struct ForgetFailure {};
/// The job is over. Its output may still wait for a reader.
struct Finish {
  std::string reason;  ///< One line; empty after success.
};

using JobOrder = std::variant<BeginAttempt, PrepareNode, StartNode, TellNode, EndNode, ForgetNode, StartAgent, Say,
                              ShowFailure, ForgetFailure, Finish>;
using JobOrders = std::vector<JobOrder>;

}  // namespace yoke::launch

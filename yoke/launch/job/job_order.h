// yoke/launch/job/job_order.h -- the orders of the job policy. The executor (supervisor.cpp) carries them out one after
// the other, and decides nothing itself.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "yoke/launch/output/failure_report.h"
#include "yoke/launch/plan/plan.h"
#include "yoke/launch/process/order.h"

namespace yoke::launch {

/// Begins a new attempt. The executor forgets the ranks of the attempt before.
struct BeginAttempt {
  int64_t num_ranks = 0;
  int64_t num_starts = 0;  ///< The number of starts before this one.
};
/// Tells the node to take a port for the ranks' TCPStore at `address`. The node answers with kPrepared or kRefused.
struct PrepareNode {
  int node = 0;
  std::string address;
};
struct StartNode {
  int node = 0;
  NodePlace place;
};
/// Tells the node to signal its processes, kill them, or end the store, as `order` says.
struct TellNode {
  int node = 0;
  Order order = Order::kNone;
  int signal = 0;
};
/// Starts a rank of the node again, whose process `pid` has ended, while the others run.
struct ReplaceRank {
  int node = 0;
  int64_t rank = 0;
  int pid = 0;
  int64_t number = 0;  ///< Of the replacement, from 1.
};
/// Dismisses the node. Its launcher or agent ends with this status.
struct EndNode {
  int node = 0;
  int exit_status = 0;
  std::string reason;  ///< The reason for the user of that node; empty if none is needed.
};
/// The node was lost. The policy no longer refers to it.
struct ForgetNode {
  int node = 0;
};
/// Starts an agent on NodesSpec::hosts[host]. The executor then calls on_agent_started() or on_agent_failed().
struct StartAgent {
  size_t host = 0;
};
/// Prints a whole line for the user.
struct Say {
  std::string line;
};
/// Prints what is known about the failure of ranks in this attempt.
struct ShowFailure {
  FailedRank failed;
};
/// Forgets the failure of the last attempt, because a new one follows.
struct ForgetFailure {};
/// Ends the job. Its output may still wait for a reader.
struct Finish {
  std::string reason;  ///< One line; empty after success.
};

using JobOrder = std::variant<BeginAttempt, PrepareNode, StartNode, TellNode, ReplaceRank, EndNode, ForgetNode,
                              StartAgent, Say, ShowFailure, ForgetFailure, Finish>;
using JobOrders = std::vector<JobOrder>;

}  // namespace yoke::launch

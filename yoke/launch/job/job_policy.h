// yoke/launch/job/job_policy.h -- the head's decisions about a job: which nodes take part, when ranks start and end,
// and what the user is told. Pure: events and the time go in, orders come out (job_order.h).
//
// Each event is a call of one of the functions on_...(). Its source is a node (NodeEvent), a signal, `yoke stop`, or
// the start of an agent. After each turn of its loop the executor calls decide(), which returns the orders that follow
// from the state and the time. It repeats this until there are no more orders. Carrying out an order may cause an event
// (a node of this machine answers at once). The orders for such an event are carried out first.
//
//   kGathering  waits for nodes          -> kPreparing  enough nodes are there
//                                        -> kEnding     a signal, a needed host failed, or too few nodes joined in time
//   kPreparing  node 0 takes a port      -> kStarting   it has one
//                                        -> (attempt is over)  a node refused, was lost, leaves; a signal
//   kStarting   one node after the other -> kRunning    all have started, or one refused
//   kRunning    until no node takes part -> (attempt is over)
//   (attempt is over)                    -> kGathering  the ranks begin again
//                                        -> kEnding
//   kEnding     output is being read     -> kOver       it was read, or the user does not wait for it
//
// JobPolicy has three independent parts: RankPolicy (which rank failed, and what follows), Membership (which nodes take
// part, and when to start), HostTries (when to try a host again).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "yoke/launch/job/host_tries.h"
#include "yoke/launch/job/job_order.h"
#include "yoke/launch/job/member.h"
#include "yoke/launch/job/rank_policy.h"
#include "yoke/launch/node/membership.h"
#include "yoke/launch/node/nodes.h"

namespace yoke::launch {

class JobPolicy {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Phase { kGathering, kPreparing, kStarting, kRunning, kEnding, kOver };

  /// `spec` and `nodes` must outlive the policy.
  JobPolicy(const LaunchSpec& spec, const NodesSpec& nodes, Time now);

  // Nodes. No id is used twice.

  /// Adds the head's own node, which is ready at once.
  int add_own_node(NodeInfo info, Time now);
  /// Adds a node that connected by itself.
  int add_node();
  int on_agent_started(size_t host);
  JobOrders on_agent_failed(size_t host, const std::string& why);

  /// Said before the event that a node is lost, because it has sent nothing: which others are silent, too.
  void note_silent(std::set<int> ids) { silent_ = std::move(ids); }
  /// Ignores events of nodes that are unknown or lost.
  JobOrders on_node_event(int id, const NodeEvent& event, Time now);
  /// `last_heard(id)`: when node `id` last sent something. If a node asks for the node rank of another node that is
  /// still heard, it is refused.
  JobOrders on_heard(const std::function<Time(int id)>& last_heard);

  // The user.

  JobOrders on_signal(int signal, Time now);
  /// Handles Ctrl-C (SIGINT from the terminal) while a rank reads from the terminal.
  JobOrders on_interrupt_at_rank(Time now);
  JobOrders on_stop(StopHow how, Time now);

  // The time.

  enum class Screen { kIsWritten, kIsWaiting };
  /// Returns the orders that follow from the state and `now`. If there are none, the next call is needed after the next
  /// event or at next_time().
  JobOrders decide(Time now, Screen screen);
  std::optional<Time> next_time() const;

  Phase phase() const { return phase_; }
  bool is_stopping() const { return is_stopping_; }  ///< Whether a launcher's signal or `yoke stop` asked for the end.
  const RankPolicy& ranks() const { return ranks_; }
  const Membership& membership() const { return membership_; }
  bool has(int id) const { return members_.contains(id); }  ///< False once a lost node is forgotten.
  const Member& member(int id) const { return members_.at(id); }

 private:
  // Events of nodes.
  void welcome(int id, Member& member, const NodeInfo& info, Time now);
  void judge_spare(int id, Member& member);
  void on_refused(int id, Member& member, const NodeEvent& event, Time now);
  void on_ended(Member& member, Time now);
  void on_lost(int id, Member& member, const NodeEvent& event, Time now);
  void on_given_up(const Member& member, const std::string& why, Time now);
  void on_host_lost(int id, const Member& lost, const std::string& text, Time now);
  std::optional<int> find_spare(const Member& lost) const;
  bool are_all_silent(int lost) const;
  std::string with_silent(int lost, const std::string& text) const;
  void on_node_signal(int id, Member& member, int signal, Time now);
  void on_guardian_lost(int id, Member& member, int pid, Time now);
  void refuse(int id, Member& member, const std::string& why);
  void dismiss(int id, Member& member, int exit_status, const std::string& why = "");
  bool may_leave(const Member& member) const;
  bool too_few_hosts_left() const;

  // Phases.
  void gather(Time now);
  void begin_start(Time now);
  void prepare(Time now);
  void start_next();
  void run(Time now);
  void end_attempt(Time now);
  void finish();
  void say_missing(Time now);
  void say_place_of_spare(const Member& spare, size_t node_rank);
  void say_unreachable(size_t host, const std::string& why);
  void reach_hosts(Time now);
  void forget_lost();
  void release_store();

  // Orders.
  void order(JobOrder order) { orders_.push_back(std::move(order)); }
  void say(const std::string& text);
  void stop(const RankPolicy::Decision& decision, Time now);
  void tell(const RankPolicy::Decision& decision);
  JobOrders take_orders();
  std::string on_host(const Member& member) const;  ///< " on b" if there are several nodes, else empty.
  bool is_drain_over(Time now) const { return drain_until_ && now >= *drain_until_; }

  const LaunchSpec& spec_;
  const NodesSpec& nodes_;
  RankPolicy ranks_;
  Membership membership_;
  HostTries tries_;
  Members members_;
  int last_id_ = -1;
  std::set<int> silent_;         ///< See note_silent().
  std::set<size_t> lost_hosts_;  ///< Indices in NodesSpec::hosts of those that were lost at any time.
  Phase phase_ = Phase::kGathering;
  bool is_stopping_ = false;
  std::optional<Time> drain_until_;  ///< When to stop waiting for readers of the output; unset: never.
  JobOrders orders_;                 ///< The orders for the event that is being handled.

  Time gathering_since_;
  std::optional<Time> delayed_until_;  ///< When the next start may begin, if the restart rule delays it.
  bool is_gathering_again_ = false;
  bool has_said_missing_;

  std::vector<std::string> gave_up_;  ///< The hosts that have given the head up in this attempt.
  std::string why_given_up_;          ///< What was said about them.
  std::vector<int> chosen_;           ///< The nodes of this start, ordered by node rank.
  NodePlace place_;                   ///< The place of the node that starts next.
  std::vector<NodePlace> places_;     ///< Of the nodes that have been started, by node rank.
  /// For each role of this start: its ranks, and how many of them are on nodes that have started.
  struct RoleCount {
    int64_t all = 0, started = 0;
  };
  std::map<std::string, RoleCount> roles_;
  std::optional<uint16_t> master_port_;
};

}  // namespace yoke::launch

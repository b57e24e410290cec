// yoke/launch/job/member.h -- a node as the job policy knows it. Values alone: the node itself is the executor's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "yoke/launch/node/node.h"

namespace yoke::launch {

/// What a node does in the current start of the job.
///
///   kConnecting -> kWaiting                  it introduced itself
///   kWaiting    -> kPreparing                it was chosen for a start
///   kPreparing  -> kRunning                  it was told to start its ranks
///   kRunning   <-> kOnlyStore                its ranks ended and the store waits; the store may end
///   kRunning, kOnlyStore -> kDraining        all of its processes ended
///   kDraining   -> kWaiting                  the head has all that its ranks printed
///   kPreparing, kRunning, kOnlyStore, kDraining -> kWaiting    it refused, or the start was cancelled
///   any of them -> kLost                     its connection ended; no event of it follows
///
/// A node that was dismissed (Member::leaves_with) is kLeft where the table says kWaiting.
enum class MemberState {
  kConnecting,  ///< Its agent was started, or connected, and has not introduced itself.
  kWaiting,     ///< It can take part in the next start.
  kPreparing,
  kRunning,
  kOnlyStore,  ///< Of its processes only the one that serves the ranks' store is left.
  kDraining,
  kLeft,  ///< It takes part in no further start.
  kLost,
};

/// Whether a node in this state belongs to the current start: it has processes, or not all that they printed is here.
bool takes_part(MemberState state);
bool has_processes(MemberState state);

struct Member {
  MemberState state = MemberState::kConnecting;
  /// True for the head's own node. The job cannot continue without it, so it is never dismissed.
  bool is_heads_own = false;
  std::optional<size_t> host;      ///< Index in NodesSpec::hosts, if the head started its agent there.
  std::optional<int> leaves_with;  ///< The exit status of a node that was dismissed; unset: it stays.
  std::string name;                ///< For messages, as the user calls it; empty: it need not be named.
  NodeInfo info;                   ///< What it said about itself. REQUIRES: state is not kConnecting.
  std::set<int64_t> ranks;         ///< Of the current start.

  bool takes_part() const { return launch::takes_part(state); }
  bool has_processes() const { return launch::has_processes(state); }
  bool is_ready() const { return state != MemberState::kConnecting && state != MemberState::kLost; }
  void leave_start() { state = leaves_with ? MemberState::kLeft : MemberState::kWaiting; }

  /// Begins a notice of this node: "b: ", or nothing for the head's own.
  std::string notice_prefix() const;
  /// A file on this node, for people: "b:/logs/0", or "/logs/0" on the head's own.
  std::string path_of(const std::string& file) const { return is_heads_own ? file : info.host + ":" + file; }
};

using Members = std::map<int, Member>;  ///< By their ids, in the order of their coming.

bool has_processes(const Members& members);
bool takes_any_part(const Members& members);
int64_t num_lost(const Members& members);
/// "a, b": the names of the nodes that are ready; "none".
std::string describe(const Members& members);
/// Whether ranks on other hosts cannot find the store at `address`, because it is a loopback address.
bool is_out_of_reach(const std::string& address, const Members& members, const std::vector<int>& chosen);
/// The node that serves the ranks' store while no other process of the job is left; nullopt: there is no such node.
std::optional<int> last_with_store(const Members& members);

}  // namespace yoke::launch

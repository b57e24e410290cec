// yoke/launch/job/member.h -- a node as the job policy knows it: only values. The executor has the Node itself.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "yoke/launch/node/node.h"

namespace yoke::launch {

/// The state of a node in the current start of the job.
///
///   kConnecting -> kWaiting                  it introduced itself
///   kWaiting    -> kPreparing                it was chosen for a start
///   kPreparing  -> kRunning                  it was told to start its ranks
///   kRunning    -> kOnlyStore                its ranks ended, and the program with the store waits for the others
///   kOnlyStore  -> kRunning                  the ranks of all nodes ended, so the program with the store may end
///   kRunning, kOnlyStore -> kDraining        all of its processes ended
///   kDraining   -> kWaiting                  the head has all that its ranks printed
///   kPreparing, kRunning, kOnlyStore, kDraining -> kWaiting    it refused, or the start was cancelled
///   any of them -> kLost                     its connection ended; no event of it follows
///
/// A node that was dismissed (Member::leaves_with) is kLeft where the table says kWaiting.
enum class MemberState {
  kConnecting,  ///< Its agent was started or has connected, but has not introduced itself yet.
  kWaiting,     ///< It can take part in the next start.
  kPreparing,
  kRunning,
  kOnlyStore,  ///< Of its processes only the one that serves the ranks' TCPStore is left.
  kDraining,
  kLeft,  ///< It does not take part in further starts.
  kLost,
};

/// Whether a node in this state belongs to the current start: it has processes, or the head does not have all of their
/// output yet.
bool takes_part(MemberState state);
bool has_processes(MemberState state);

struct Member {
  MemberState state = MemberState::kConnecting;
  /// True for the head's own node. The job cannot continue without it, so it is never dismissed.
  bool is_heads_own = false;
  std::optional<size_t> host;      ///< Index in NodesSpec::hosts, if the head started its agent there.
  std::optional<int> leaves_with;  ///< The exit status of a node that was dismissed; unset if it stays.
  std::string name;                ///< The name in messages, as the user gave it; empty if messages do not name it.
  NodeInfo info;                   ///< How the node introduced itself. REQUIRES: state is not kConnecting.
  std::set<int64_t> ranks;         ///< Its ranks in the current start.

  bool takes_part() const { return launch::takes_part(state); }
  bool has_processes() const { return launch::has_processes(state); }
  bool is_ready() const { return state != MemberState::kConnecting && state != MemberState::kLost; }
  void leave_start() { state = leaves_with ? MemberState::kLeft : MemberState::kWaiting; }

  /// The beginning of a notice about this node: "b: ", or empty for the head's own.
  std::string notice_prefix() const;
  /// A file on this node, as messages name it: "b:/logs/0", or "/logs/0" on the head's own.
  std::string path_of(const std::string& file) const { return is_heads_own ? file : info.host + ":" + file; }
};

using Members = std::map<int, Member>;  ///< By id, in the order in which they joined.

bool has_processes(const Members& members);
bool takes_any_part(const Members& members);
int64_t num_lost(const Members& members);
/// The names of the nodes that are ready, "a, b", or "none".
std::string describe(const Members& members);
/// Whether ranks on other hosts cannot find the store at `address`, because it is a loopback address.
bool is_out_of_reach(const std::string& address, const Members& members, const std::vector<int>& chosen);
/// The node that serves the ranks' TCPStore while no other process of the job is left; nullopt if there is none.
std::optional<int> last_with_store(const Members& members);

}  // namespace yoke::launch

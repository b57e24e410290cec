// yoke/launch/job/member.h -- the job policy's data about a node. The Node itself belongs to the executor.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "yoke/launch/node/node.h"
#include "yoke/launch/node/nodes.h"

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
  kOnlyStore,  ///< All its processes have ended, except the one that serves the ranks' TCPStore.
  kDraining,
  kLeft,  ///< It does not take part in further starts.
  kLost,
};

/// Whether a node in this state belongs to the current start: it has processes, or some of their output has not reached
/// the head yet.
bool takes_part(MemberState state);
bool has_processes(MemberState state);

struct Member {
  MemberState state = MemberState::kConnecting;
  /// True for the head's own node. The job cannot continue without it, so it is never dismissed.
  bool is_heads_own = false;
  std::optional<size_t> host;      ///< Index in NodesSpec::hosts, if the head started its agent there.
  std::optional<int> leaves_with;  ///< The exit status of a dismissed node; unset if the node stays.
  std::string name;         ///< The name in messages, as the user gave it; empty if messages do not name the node.
  std::string hostname;     ///< What the host calls itself. Set with `info`, whose name of the host may be the user's.
  NodeInfo info;            ///< The node's introduction. REQUIRES: state is not kConnecting.
  bool took_place = false;  ///< Whether it is a spare that was told to start the ranks of a lost host while others ran.
  std::set<int64_t> ranks;  ///< The node's ranks in the current start.

  bool takes_part() const { return launch::takes_part(state); }
  bool has_processes() const { return launch::has_processes(state); }
  /// Whether it can take part in this start or the next one.
  bool may_start() const { return state != MemberState::kConnecting && state != MemberState::kLost && !leaves_with; }
  void leave_start() { state = leaves_with ? MemberState::kLeft : MemberState::kWaiting; }

  /// The beginning of a notice about this node: "b: "; empty for the head's own node.
  std::string notice_prefix() const;
  /// Returns the name of a file on this node for messages: "b:/logs/0", or "/logs/0" on the head's own node.
  std::string path_of(const std::string& file) const { return is_heads_own ? file : info.host + ":" + file; }
};

using Members = std::map<int, Member>;  ///< The key is the node's id. Ids ascend in the order of joining.

bool has_processes(const Members& members);
bool takes_any_part(const Members& members);
int64_t num_lost(const Members& members);
/// Returns the names of the nodes that can take part in a start, such as "a, b", or "none".
std::string describe(const Members& members);
/// Returns which of the job's nodes are not among them, as far as it is known: "; missing: b", "; missing: node ranks
/// 2, 3", or an empty text.
std::string describe_missing(const Members& members, const NodesSpec& nodes);
/// Whether ranks on other hosts cannot reach the store, because `address` is a loopback address.
bool is_out_of_reach(const std::string& address, const Members& members, const std::vector<int>& chosen);
/// Returns the node whose process with the ranks' TCPStore is the last process of the job; nullopt if there is none.
std::optional<int> last_with_store(const Members& members);

}  // namespace yoke::launch

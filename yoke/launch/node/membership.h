// yoke/launch/node/membership.h -- decides which nodes take part in the next start, and when to start. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace yoke::launch {

struct MembershipOptions {
  int64_t min_nodes = 1;
  int64_t max_nodes = 1;
  int64_t num_spares = 0;                           ///< Further nodes, which ask for node ranks from max_nodes on.
  std::chrono::milliseconds join_timeout{600'000};  ///< How long to wait for min_nodes. torchrun's default.
  /// How long to wait for more than min_nodes, or for a node whose place a spare can take. Used only before the first
  /// start.
  std::chrono::milliseconds last_call{30'000};
};

/// Returns the value of --nnodes, such as "2" or "2:4".
std::string nnodes_of(const MembershipOptions& options);
/// Returns the number in words: "2" or "2 to 4".
std::string describe_number(const MembershipOptions& options);
/// With --replace a spare takes the place of a host with as many ranks. Returns why one with `num_ranks` cannot, to
/// follow its name; empty if it can. `of_hosts`: the numbers of the hosts that have ranks.
std::string why_no_spare(int64_t num_ranks, const std::set<int64_t>& of_hosts);

/// The nodes that have joined and may take part in the next start. Nodes join and leave at any time. Nodes that asked
/// for a node rank are ordered by it, the other nodes by the time at which they joined. A node that joins while the
/// ranks run, or exceeds the maximum, waits for the next start. A spare takes part only if another node is missing.
class Membership {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Membership(const MembershipOptions& options, Time now) : options_(options), since_(now) {}

  /// `wanted_rank`: the node rank that the user gave this node. REQUIRES: `id` is new.
  void add(int id, std::optional<int64_t> wanted_rank, Time now);
  void remove(int id);

  /// Begins to wait for the next start. With `at_once` it waits for min_nodes, and not for more.
  void wait_for_next(Time now, bool at_once);

  enum class Verdict { kWait, kStart, kTooFew };
  Verdict judge(Time now) const;

  /// Returns the nodes of the start, ordered by node rank. REQUIRES: judge() returned kStart.
  std::vector<int> choose() const;
  /// Whether a node that asked for this node rank is a spare.
  bool is_spare(std::optional<int64_t> wanted_rank) const { return wanted_rank.value_or(0) >= options_.max_nodes; }

  /// A node `id` that asks for the same node rank as `holder`, which joined before.
  struct Conflict {
    int id = 0, holder = 0;
    int64_t rank = 0;
  };
  /// Finds the nodes that must be refused. `last_heard(id)`: when node `id` last sent something. A holder that has sent
  /// nothing since the second node joined may be lost. Then the second node takes its place without a conflict.
  std::vector<Conflict> find_conflicts(const std::function<Time(int id)>& last_heard) const;
  int64_t num_nodes() const { return static_cast<int64_t>(nodes_.size()); }
  const MembershipOptions& options() const { return options_; }

 private:
  struct Entry {
    int id;
    std::optional<int64_t> wanted_rank;
    Time since;
  };
  std::vector<Entry> choose_entries() const;

  MembershipOptions options_;
  std::vector<Entry> nodes_;  ///< In the order of joining.
  Time since_;
  std::optional<Time> enough_since_;
  bool at_once_ = false;
};

}  // namespace yoke::launch

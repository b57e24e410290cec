// yoke/launch/node/membership.h -- decides which nodes take part in the next start, and when to start. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace yoke::launch {

struct MembershipOptions {
  int64_t min_nodes = 1;
  int64_t max_nodes = 1;
  std::chrono::milliseconds join_timeout{600'000};  ///< How long to wait for min_nodes. torchrun's default.
  /// How long to wait for more than min_nodes; only before the first start.
  std::chrono::milliseconds last_call{30'000};
};

/// "2" or "2:4", the value of --nnodes.
std::string nnodes_of(const MembershipOptions& options);
/// "2" or "2 to 4", for people.
std::string describe_number(const MembershipOptions& options);

/// Nodes join and leave at any time. A start takes the nodes that have joined. Nodes that asked for a node rank are
/// ordered by it, the others by the time at which they joined. A node that joins while the ranks run, or exceeds the
/// maximum, waits for the next start.
class Membership {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Membership(const MembershipOptions& options, Time now) : options_(options), since_(now) {}

  /// `wanted_rank`: the node rank that the user gave it. REQUIRES: `id` is new.
  void add(int id, std::optional<int64_t> wanted_rank, Time now);
  void remove(int id);

  /// Begins to wait for the next start. `at_once`: it does not wait for more nodes than min_nodes.
  void wait_for_next(Time now, bool at_once);

  enum class Verdict { kWait, kStart, kTooFew };
  Verdict judge(Time now) const;
  std::optional<Time> next_time() const;  ///< When the answer of judge() may change.

  /// The nodes of the start, in the order of their node ranks. REQUIRES: judge() returned kStart.
  std::vector<int> choose() const;

  /// A node that asks for the same node rank as one that joined before it, the holder.
  struct Conflict {
    int id = 0, holder = 0;
    int64_t rank = 0;
  };
  /// `last_heard(id)`: when that node last sent something. A holder counts only if it has sent something since the
  /// second node joined: otherwise the holder may be lost, and the second node takes its place.
  std::vector<Conflict> find_conflicts(const std::function<Time(int id)>& last_heard) const;
  int64_t num_nodes() const { return static_cast<int64_t>(nodes_.size()); }
  const MembershipOptions& options() const { return options_; }

 private:
  struct Entry {
    int id;
    std::optional<int64_t> wanted_rank;
    Time since;
  };
  MembershipOptions options_;
  std::vector<Entry> nodes_;  ///< In the order in which they joined.
  Time since_;
  std::optional<Time> enough_since_;
  bool at_once_ = false;
};

}  // namespace yoke::launch

// yoke/launch/node/membership.h -- which nodes take part in the next start, and when it is time for it. Pure.
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
  std::chrono::milliseconds join_timeout{600'000};  ///< For the least number of nodes to be there. torchrun's default.
  std::chrono::milliseconds last_call{30'000};      ///< After that, for more of them, before the first start alone.
};

/// "2" or "2:4", as --nnodes has it.
std::string nnodes_of(const MembershipOptions& options);
/// "2" or "2 to 4", for people.
std::string describe_number(const MembershipOptions& options);

/// Nodes come and go at any time; a start takes those that are there, in the order of the ranks that they asked for,
/// the others in the order of their coming. Who comes while the ranks run, or is one too many, waits for the next
/// start.
class Membership {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Membership(const MembershipOptions& options, Time now) : options_(options), since_(now) {}

  /// `id` is the caller's, and new. `wanted_rank`: the node rank that it was given by hand.
  void add(int id, std::optional<int64_t> wanted_rank, Time now);
  void remove(int id);

  /// From now on another start is waited for. `at_once`: nodes that are there are enough, if they are min_nodes.
  void wait_for_next(Time now, bool at_once);

  enum class Verdict { kWait, kStart, kTooFew };
  Verdict judge(Time now) const;
  std::optional<Time> next_time() const;  ///< When judge() may say something else.

  /// The nodes of the start, by node rank. REQUIRES: judge() said kStart.
  std::vector<int> choose() const;

  /// A node that asks for the rank of one which came before it.
  struct Rival {
    int id = 0, holder = 0;
    int64_t rank = 0;
  };
  /// `last_heard(id)`: when something was last heard of that node. Only holders that were heard of since their rival
  /// came count: another one may be lost without a word, and the rival is what takes its place.
  std::vector<Rival> find_rivals(const std::function<Time(int id)>& last_heard) const;
  int64_t num_nodes() const { return static_cast<int64_t>(nodes_.size()); }
  const MembershipOptions& options() const { return options_; }

 private:
  struct Entry {
    int id;
    std::optional<int64_t> wanted_rank;
    Time since;
  };
  MembershipOptions options_;
  std::vector<Entry> nodes_;  ///< In the order of their coming.
  Time since_;
  std::optional<Time> enough_since_;
  bool at_once_ = false;
};

}  // namespace yoke::launch

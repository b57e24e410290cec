#include "yoke/profile/joint_steps.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace yoke::profile {
namespace {

using ByRank = std::map<size_t, std::vector<Collective>>;

/// Collectives with the same name are matched between ranks by their order. If the ranks have different numbers of
/// these collectives, the order means nothing. Then each rank's collectives are replaced by their sum.
void match(ByRank& by_rank) {
  const auto count = by_rank.begin()->second.size();
  if (std::ranges::all_of(by_rank, [&](const auto& of) { return of.second.size() == count; })) return;
  for (auto& [rank, collectives] : by_rank) {
    for (size_t i = 1; i < collectives.size(); ++i) {
      collectives[0].duration_ns += collectives[i].duration_ns;
      collectives[0].exposed_ns += collectives[i].exposed_ns;
    }
    collectives.resize(1);
  }
}

/// The last rank to enter a collective spends the least time in it, so the other ranks' additional time is waiting.
void split_collective(const ByRank& by_rank, size_t i, JointStep& step) {
  int64_t least_exposed = INT64_MAX, shortest = INT64_MAX, longest_wait = 0;
  size_t last = 0;
  for (const auto& [rank, collectives] : by_rank) {
    least_exposed = std::min(least_exposed, collectives[i].exposed_ns);
    if (collectives[i].duration_ns < shortest) std::tie(shortest, last) = std::pair(collectives[i].duration_ns, rank);
  }
  for (const auto& [rank, collectives] : by_rank) {
    const auto waiting = collectives[i].exposed_ns - least_exposed;
    step.waiting_ns[rank] += waiting;
    longest_wait = std::max(longest_wait, waiting);
  }
  step.communication_ns += least_exposed;
  step.late_ns[last] += longest_wait;
}

}  // namespace

int64_t JointStep::length_ns() const {
  int64_t longest = 0;
  for (const auto* step : ranks) longest = std::max(longest, step->length_ns);
  return longest;
}

std::vector<JointStep> join_steps(const std::vector<RankAccount>& ranks) {
  std::map<int64_t, std::vector<const Step*>> by_number;
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (const auto& step : ranks[i].steps) {
      auto& steps = by_number[step.number];
      if (steps.size() == i) steps.push_back(&step);  // else an earlier rank lacks the step, or this rank has it twice
    }
  }
  std::vector<JointStep> joint;
  for (auto& [number, steps] : by_number) {
    if (steps.size() != ranks.size()) continue;
    JointStep step{.ranks = std::move(steps)};
    step.waiting_ns.resize(ranks.size());
    step.late_ns.resize(ranks.size());
    std::map<size_t, ByRank> by_key;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      for (const auto& collective : step.ranks[rank]->collectives) by_key[collective.key][rank].push_back(collective);
    }
    for (auto& [key, by_rank] : by_key) {
      match(by_rank);
      for (size_t i = 0; i < by_rank.begin()->second.size(); ++i) split_collective(by_rank, i, step);
    }
    joint.push_back(std::move(step));
  }
  return joint;
}

}  // namespace yoke::profile

#include "yoke/launch/node/membership.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "yoke/base/format.h"

namespace yoke::launch {

std::string nnodes_of(const MembershipOptions& options) {
  return options.min_nodes == options.max_nodes ? fmt::format("{}", options.min_nodes)
                                                : fmt::format("{}:{}", options.min_nodes, options.max_nodes);
}

std::string describe_number(const MembershipOptions& options) {
  if (options.min_nodes == options.max_nodes) return fmt::format("{}", options.min_nodes);
  return fmt::format("{} to {}", options.min_nodes, options.max_nodes);
}

std::string why_no_spare(int64_t num_ranks, const std::set<int64_t>& of_hosts) {
  if (of_hosts.empty() || of_hosts.contains(num_ranks)) return "";
  const auto last = *of_hosts.rbegin();
  const auto numbers =
      of_hosts.size() == 1
          ? fmt::format("{} each", last)
          : fmt::format("{} or {}", fmt::join(of_hosts.begin(), std::prev(of_hosts.end()), ", "), last);
  return fmt::format("has {} (-n), and a spare takes the place of a host with as many: the job's hosts have {}",
                     counted(num_ranks, "rank"), numbers);
}

void Membership::add(int id, std::optional<int64_t> wanted_rank, Time now) {
  nodes_.push_back({id, wanted_rank, now});
  if (!enough_since_ && static_cast<int64_t>(choose().size()) >= options_.min_nodes) enough_since_ = now;
}

void Membership::remove(int id) {
  std::erase_if(nodes_, [id](const Entry& node) { return node.id == id; });
  if (static_cast<int64_t>(choose().size()) < options_.min_nodes) enough_since_.reset();
}

void Membership::wait_for_next(Time now, bool at_once) {
  since_ = now;
  at_once_ = at_once;
  enough_since_.reset();
  if (static_cast<int64_t>(choose().size()) >= options_.min_nodes) enough_since_ = now;
}

Membership::Verdict Membership::judge(Time now) const {
  const auto chosen = choose_entries();
  const auto count = static_cast<int64_t>(chosen.size());
  const bool has_spare = std::ranges::any_of(chosen, [this](const Entry& node) { return is_spare(node.wanted_rank); });
  if (count >= options_.max_nodes && !has_spare) return Verdict::kStart;
  if (count >= options_.min_nodes && enough_since_) {
    if (at_once_ || now >= *enough_since_ + options_.last_call) return Verdict::kStart;
    return Verdict::kWait;
  }
  return now >= since_ + options_.join_timeout ? Verdict::kTooFew : Verdict::kWait;
}

std::vector<Membership::Conflict> Membership::find_conflicts(const std::function<Time(int id)>& last_heard) const {
  std::vector<Conflict> conflicts;
  std::map<int64_t, int> holders;
  for (const auto& node : nodes_) {
    if (!node.wanted_rank) continue;
    const auto [holder, is_first] = holders.emplace(*node.wanted_rank, node.id);
    if (!is_first && last_heard(holder->second) > node.since) {
      conflicts.push_back({.id = node.id, .holder = holder->second, .rank = *node.wanted_rank});
    }
  }
  return conflicts;
}

std::vector<Membership::Entry> Membership::choose_entries() const {
  auto nodes = nodes_;
  std::ranges::stable_partition(nodes, [this](const Entry& node) { return !is_spare(node.wanted_rank); });
  // If several nodes ask for the same rank, the first one gets it. The others wait until it has left.
  std::vector<Entry> chosen;
  for (const auto& node : nodes) {
    if (static_cast<int64_t>(chosen.size()) == options_.max_nodes) break;
    const bool is_taken = node.wanted_rank && std::ranges::any_of(chosen, [&](const Entry& other) {
                            return other.wanted_rank == node.wanted_rank;
                          });
    if (!is_taken) chosen.push_back(node);
  }
  return chosen;
}

std::vector<int> Membership::choose() const {
  auto chosen = choose_entries();
  // Nodes get the ranks that they asked for, if these ranks exist. The other nodes fill the gaps.
  std::ranges::stable_sort(chosen, [](const Entry& a, const Entry& b) {
    return a.wanted_rank.value_or(INT64_MAX) < b.wanted_rank.value_or(INT64_MAX);
  });
  std::vector<const Entry*> places(chosen.size(), nullptr);
  std::vector<const Entry*> others;
  for (const auto& node : chosen) {
    const auto rank = static_cast<size_t>(node.wanted_rank.value_or(INT64_MAX));
    if (rank < places.size()) {
      places[rank] = &node;
    } else {
      others.push_back(&node);
    }
  }
  auto other = others.begin();
  for (auto& place : places) {
    if (place == nullptr) place = *other++;
  }
  std::vector<int> result;
  result.reserve(places.size());
  for (const auto* node : places) result.push_back(node->id);
  return result;
}

}  // namespace yoke::launch

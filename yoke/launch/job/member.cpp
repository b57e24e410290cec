#include "yoke/launch/job/member.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "yoke/base/text.h"

namespace yoke::launch {
namespace {

bool is_loopback_address(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

bool any_of(const Members& members, bool (Member::*has)() const) {
  return std::ranges::any_of(members, [&](const auto& entry) { return (entry.second.*has)(); });
}

}  // namespace

bool takes_part(MemberState state) {
  return state == MemberState::kPreparing || state == MemberState::kDraining || has_processes(state);
}

bool has_processes(MemberState state) { return state == MemberState::kRunning || state == MemberState::kOnlyStore; }

std::string Member::notice_prefix() const { return is_heads_own ? "" : printable(name) + ": "; }

bool has_processes(const Members& members) { return any_of(members, &Member::has_processes); }

bool takes_any_part(const Members& members) { return any_of(members, &Member::takes_part); }

int64_t num_lost(const Members& members) {
  return std::ranges::count_if(members, [](const auto& entry) { return entry.second.state == MemberState::kLost; });
}

std::string describe(const Members& members) {
  std::vector<std::string> names;
  for (const auto& [id, member] : members) {
    if (member.may_start()) names.push_back(printable(member.name));
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::string describe_missing(const Members& members, const NodesSpec& nodes) {
  constexpr size_t kMostNamed = 8;
  std::vector<std::string> missing;
  const char* what = "";
  if (!nodes.hosts.empty()) {
    for (size_t host = 0; host < nodes.hosts.size(); ++host) {
      const bool is_there = std::ranges::any_of(
          members, [&](const auto& entry) { return entry.second.host == host && entry.second.may_start(); });
      if (!is_there) missing.push_back(printable(nodes.hosts[host].name));
    }
  } else {
    const auto num_nodes = nodes.membership.max_nodes + nodes.membership.num_spares;
    std::set<int64_t> taken;
    bool has_gap = false;  // the head has no --node-rank, and takes the first one that is left
    for (const auto& [id, member] : members) {
      if (!member.may_start()) continue;
      if (member.info.node_rank) {
        taken.insert(*member.info.node_rank % num_nodes);  // one that returns has asked for a later one
      } else if (member.is_heads_own) {
        has_gap = true;
      } else {
        return "";  // it may have any of them
      }
    }
    if (taken.empty()) return "";
    for (int64_t rank = 0; rank < num_nodes; ++rank) {
      if (!taken.contains(rank) && !std::exchange(has_gap, false)) missing.push_back(std::to_string(rank));
    }
    what = missing.size() == 1 ? "node rank " : "node ranks ";
  }
  if (missing.empty()) return "";
  const auto rest = missing.size() - std::min(missing.size(), kMostNamed);
  missing.resize(missing.size() - rest);
  return fmt::format("; missing: {}{}{}", what, fmt::join(missing, ", "),
                     rest > 0 ? fmt::format(" and {} more", rest) : "");
}

bool is_out_of_reach(const std::string& address, const Members& members, const std::vector<int>& chosen) {
  return is_loopback_address(address) && std::ranges::any_of(chosen, [&](int id) {
           const auto& member = members.at(id);
           return !member.is_heads_own && !is_loopback_address(member.info.address);
         });
}

std::optional<int> last_with_store(const Members& members) {
  std::optional<int> store;
  for (const auto& [id, member] : members) {
    if (!member.has_processes()) continue;
    if (member.state != MemberState::kOnlyStore) return std::nullopt;
    store = id;
  }
  return store;
}

}  // namespace yoke::launch

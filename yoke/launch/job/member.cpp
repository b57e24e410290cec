#include "yoke/launch/job/member.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "yoke/base/text.h"

namespace yoke::launch {
namespace {

constexpr std::chrono::seconds kLongestPause{60};

bool is_loopback_address(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

}  // namespace

Members::iterator find_member(Members& members, const Node& node) {
  return std::find_if(members.begin(), members.end(),
                      [&](const auto& entry) { return entry.second.node.get() == &node; });
}

int64_t num_lost(const Members& members) {
  return std::count_if(members.begin(), members.end(), [](const auto& entry) { return entry.second.is_lost; });
}

bool takes_any_part(const Members& members) {
  return std::any_of(members.begin(), members.end(), [](const auto& entry) { return entry.second.takes_part; });
}

bool is_out_of_reach(const std::string& address, const Members& members, const std::vector<int>& chosen) {
  return is_loopback_address(address) && std::any_of(chosen.begin(), chosen.end(), [&](int id) {
           return members.at(id).remote != nullptr && !is_loopback_address(members.at(id).info.address);
         });
}

bool has_processes(const Members& members) {
  return std::any_of(members.begin(), members.end(), [](const auto& entry) { return entry.second.has_processes; });
}

std::string describe(const Members& members) {
  std::vector<std::string> names;
  for (const auto& [id, member] : members) {
    if (member.is_ready && !member.is_lost) names.push_back(printable(member.info.host));
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

Member* last_with_store(Members& members) {
  Member* store = nullptr;
  for (auto& [id, member] : members) {
    if (!member.has_processes) continue;
    if (!member.has_only_store) return nullptr;
    store = &member;
  }
  return store;
}

void add_ranks(Job& job, const Member& member, const Place& place, const LaunchSpec& spec, bool is_shown_here) {
  for (const auto rank : member.ranks) {
    const auto local_rank = rank - place.first_rank;
    JobRank one{.rank = rank, .local_rank = local_rank, .host = job.host};
    one.prefix = prefix_of(spec, place, local_rank);
    if (member.remote != nullptr) {
      one.host = member.info.host;
      if (!is_shown_here) one.out.to = one.err.to = StreamPlan::To::kNowhere;
    } else if (const auto index = static_cast<size_t>(local_rank); index < member.local->plans().size()) {
      one.out = member.local->plans()[index].out;
      one.err = member.local->plans()[index].err;
    }
    job.ranks.push_back(std::move(one));
  }
}

bool HostTries::take(size_t index, Time now) {
  auto& host = hosts_[index];
  if (now < host.next) return false;
  host.next = now + host.pause;
  host.pause = std::min(2 * host.pause, kLongestPause);
  return true;
}

bool HostTries::take_complaint(size_t index) { return !std::exchange(hosts_[index].has_said, true); }

}  // namespace yoke::launch

#include "yoke/dist/shared/topology.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

namespace yoke::dist::shared {

Hosts hosts_of(const std::vector<std::string>& names) {
  Hosts hosts;
  std::map<std::string, size_t> places;
  for (size_t rank = 0; rank < names.size(); ++rank) {
    const auto [place, is_new] = places.emplace(names[rank], hosts.size());
    if (is_new) hosts.emplace_back();
    hosts[place->second].push_back(static_cast<int64_t>(rank));
  }
  return hosts;
}

Hosts one_host(int64_t num_ranks) {
  Hosts hosts(1, std::vector<int64_t>(static_cast<size_t>(num_ranks)));
  std::iota(hosts[0].begin(), hosts[0].end(), 0);
  return hosts;
}

size_t host_of(const Hosts& hosts, int64_t rank) {
  const auto host =
      std::ranges::find_if(hosts, [&](const auto& ranks) { return std::ranges::find(ranks, rank) != ranks.end(); });
  return static_cast<size_t>(std::distance(hosts.begin(), host));
}

int64_t carrier_of(const Hosts& hosts, int64_t rank, size_t host) {
  const auto& own = hosts[host_of(hosts, rank)];
  const auto& others = hosts[host];
  const auto place = std::distance(own.begin(), std::ranges::find(own, rank));
  return others[static_cast<size_t>(place) % others.size()];
}

Topology::Topology(Hosts hosts, int64_t rank) : hosts_(std::move(hosts)), own_(host_of(hosts_, rank)) {
  size_t num_ranks = 0;
  for (const auto& ranks : hosts_) num_ranks += ranks.size();
  carriers_.assign(num_ranks, kNoCarrier);
  for (size_t host = 0; host < hosts_.size(); ++host) {
    if (host == own_) continue;
    of_this_rank_.push_back(shared::carrier_of(hosts_, rank, host));
    for (const int64_t other : hosts_[host]) {
      const auto carrier = carriers_[static_cast<size_t>(other)] = shared::carrier_of(hosts_, other, own_);
      if (carrier == rank) carried_.push_back(other);
    }
  }
  std::ranges::sort(of_this_rank_);
  std::ranges::sort(carried_);
  std::ranges::merge(here(), of_this_rank_, std::back_inserter(contributors_));
}

}  // namespace yoke::dist::shared

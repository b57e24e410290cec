// yoke/dist/shared/topology.h -- which ranks of a group are on which host, and who passes on what they publish. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace yoke::dist::shared {

/// The hosts of a group: their ranks in ascending order; the hosts in the order of their first ranks.
using Hosts = std::vector<std::vector<int64_t>>;

/// `names`: of the host of each rank.
Hosts hosts_of(const std::vector<std::string>& names);
/// All ranks on one host.
Hosts one_host(int64_t num_ranks);
/// The place of the rank's host in `hosts`.
size_t host_of(const Hosts& hosts, int64_t rank);
/// The rank of another host that writes there what `rank` publishes.
int64_t carrier_of(const Hosts& hosts, int64_t rank, size_t host);

inline constexpr int64_t kNoCarrier = -1;

/// The hosts as one rank sees them. All lists of ranks ascend.
class Topology {
 public:
  Topology(Hosts hosts, int64_t rank);

  const Hosts& hosts() const { return hosts_; }
  /// The ranks of this host.
  const std::vector<int64_t>& here() const { return hosts_[own_]; }
  /// Of a rank of another host, the rank of this host that carries it (mirror.h); kNoCarrier for the ranks of this
  /// host.
  int64_t carrier_of(int64_t rank) const { return carriers_[static_cast<size_t>(rank)]; }
  bool is_here(int64_t rank) const { return carrier_of(rank) == kNoCarrier; }
  /// The ranks of other hosts that this rank carries.
  const std::vector<int64_t>& carried() const { return carried_; }
  /// The ranks of other hosts that carry this one: one for each host.
  const std::vector<int64_t>& carriers() const { return of_this_rank_; }
  /// Those, and the ranks of this host.
  const std::vector<int64_t>& contributors() const { return contributors_; }

 private:
  Hosts hosts_;
  size_t own_;
  std::vector<int64_t> carriers_;  ///< By rank of the group.
  std::vector<int64_t> carried_, of_this_rank_, contributors_;
};

}  // namespace yoke::dist::shared

// yoke/dist/shared/links.h -- connects the ranks of a group over several hosts, for mirror.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/base/file.h"
#include "yoke/dist/shared/mirror.h"

namespace yoke::dist::shared {

/// The hosts of a group: their ranks in ascending order; the hosts in the order of their first ranks.
using Hosts = std::vector<std::vector<int64_t>>;

/// Pure. `names`: of the host of each rank.
Hosts hosts_of(const std::vector<std::string>& names);
/// Pure. The place of the rank's host in `hosts`.
size_t host_of(const Hosts& hosts, int64_t rank);
/// Pure. The rank of another host that writes there what `rank` publishes.
int64_t carrier_of(const Hosts& hosts, int64_t rank, size_t host);

/// Where a rank takes the connections of ranks of other hosts.
class Listener {
 public:
  /// `address`: of this host, in digits. The system chooses the port.
  /// Errors  as errno says: this host has no such address, or no socket is left.
  explicit Listener(const std::string& address);

  /// For connect_hosts() on other hosts: address, port and a secret, which only ranks of the job should get.
  const std::string& address() const { return address_; }

 private:
  friend Links connect_hosts(Listener& listener, const struct LinkOptions& options);
  UniqueFd socket_;
  std::string address_, secret_;
};

struct LinkOptions {
  int64_t rank = 0;
  Hosts hosts = {};
  std::vector<std::string> addresses = {};  ///< Of the Listener of each rank.
  const Segment* segment = nullptr;         ///< Of this host; the others must have the same layout.
  std::function<void()> check = {};         ///< Called while this rank waits, to end that by an exception.
  Clock::time_point until;
};

/// Collective. Connects this rank to the others.
/// Errors  kUnavailable: not all have connected by then; as errno says: a rank cannot be reached.
Links connect_hosts(Listener& listener, const LinkOptions& options);

}  // namespace yoke::dist::shared

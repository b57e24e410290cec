// yoke/dist/shared/links.h -- connects the ranks of a group over several hosts, for mirror.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/dist/shared/mirror.h"
#include "yoke/dist/shared/topology.h"

namespace yoke::dist::shared {

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
  Clock::time_point until;                  ///< When it gives up to reach another rank.
  /// So much longer it waits for those that reach this one, so that it becomes known who could not reach whom.
  std::chrono::milliseconds for_connectors{5'000};
};

/// A rank of another host has given no answer at all, as behind a firewall that drops packets.
class NoAnswer : public Error {
 public:
  NoAnswer(const std::string& message, size_t which) : Error(ErrorCode::kUnavailable, message), host(which) {}
  const size_t host;  ///< In LinkOptions::hosts.
};

/// Collective. Connects this rank to the others.
/// Errors  NoAnswer; kUnavailable: not all have connected by then; as errno says: a rank cannot be reached.
Links connect_hosts(Listener& listener, const LinkOptions& options);

}  // namespace yoke::dist::shared

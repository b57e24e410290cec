// yoke/launch/store/peer_user.h -- whose process has the other end of a TCP connection. A connection of TCP carries no
// credentials (SO_PEERCRED), but the kernel says who made a socket of this host.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>

#include "yoke/base/file.h"

namespace yoke::launch {

struct Peer {
  enum class Kind {
    kUser,       ///< A process of the user `uid`, on this host.
    kElsewhere,  ///< Another host, or another network of this host, such as a container's: nothing is known.
    kGone,       ///< A process of this host that has closed its end already: whose it was is not known any more.
  };
  Kind kind = Kind::kElsewhere;
  uid_t uid = 0;
};

/// Asks the kernel for the users of sockets: by netlink (sock_diag(7)), which takes microseconds, or by the files
/// /proc/net/tcp and tcp6 where that is not possible. If neither is possible, each peer is kElsewhere.
class PeerUsers {
 public:
  enum class Source { kNetlink, kFiles };  ///< kFiles is for tests.

  explicit PeerUsers(Source source = Source::kNetlink);
  /// `peer` and `own` are the addresses of the two ends of a connection that this process has accepted and holds.
  Peer look_up(const sockaddr_storage& peer, const sockaddr_storage& own) const;

 private:
  UniqueFd netlink_;
};

}  // namespace yoke::launch

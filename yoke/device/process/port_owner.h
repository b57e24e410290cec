// yoke/device/process/port_owner.h -- who listens on a TCP port of this machine, for messages about ports that are
// taken.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace yoke::device {

/// A socket that listens, as /proc/net/tcp and tcp6 list it.
struct ListeningSocket {
  int64_t uid = 0;
  int64_t inode = 0;

  bool operator==(const ListeningSocket&) const = default;
};

/// Returns a socket that listens on `port` of any address, as far as the kernel tells.
std::optional<ListeningSocket> listener_at(uint16_t port);

/// Returns "process 4121 of ada (train.py)", or "a process of ada" if /proc does not show this user which one it is.
/// Returns nothing if no process listens there, as far as the kernel tells. Does not throw.
std::string who_listens(uint16_t port);

/// Returns the first socket of `text`, the content of such a file, that listens on `port` of any address. Pure.
std::optional<ListeningSocket> find_listening_socket(std::string_view text, uint16_t port);

}  // namespace yoke::device

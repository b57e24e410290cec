// yoke/base/user_socket.h -- Unix sockets by which a user's processes on this machine find each other.
//
// Any process may listen under any name. A socket is trusted only if the kernel confirms that its listener has the PID
// and the user in the socket's name.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/file.h"

namespace yoke {

/// The abstract name of a listening socket, and the values in the name.
struct UserSocket {
  std::string name;  ///< "SERVICE/UID/PID/RANDOM". The random part prevents other users from taking the name first.
  int64_t uid = 0;
  int64_t pid = 0;

  bool operator==(const UserSocket&) const = default;
};

/// Listens under a new name of `service` ("yoke" for launchers), on a non-blocking socket. Stores the name in `name` if
/// that is not null. Returns an empty UniqueFd if the kernel refuses; errno says why.
UniqueFd listen_as_user(std::string_view service, std::string* name = nullptr);

/// Parses a name of `service`. Returns nullopt for any other text.
std::optional<UserSocket> parse_user_socket(std::string_view service, std::string_view name);

/// Finds the sockets of `service` on which a process of user `uid` (of any user if it is 0) listens. `text` is the
/// content of /proc/net/unix. The result is sorted by PID. Pure.
std::vector<UserSocket> find_user_sockets(std::string_view text, std::string_view service, int64_t uid);

/// Like find_user_sockets(), for this machine now. Errors  as errno says if /proc/net/unix cannot be read.
std::vector<UserSocket> list_user_sockets(std::string_view service, int64_t uid);

/// kBusy: the listener's queue of connections is full, so another try may succeed.
enum class Connected { kYes, kNo, kBusy };

/// Connects to `socket` and stores a non-blocking descriptor in `fd`. Returns kNo also if the listener's PID or user is
/// not the one in the name. Errors  as errno says: out of descriptors.
Connected connect_to(const UserSocket& socket, UniqueFd& fd);

/// Accepts a waiting connection, without blocking. Returns an empty UniqueFd if there is none; errno says why.
UniqueFd accept_connection(int listener);

/// The process and the user at the other end of a connection. peer_of() returns nullopt if the kernel does not know
/// them.
struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
};
std::optional<Peer> peer_of(int connection);

/// Returns the start time of a process in clock ticks since boot. Together with the PID it identifies the process.
/// Returns nullopt if /proc does not have the process.
std::optional<int64_t> start_ticks_of(pid_t pid);

}  // namespace yoke

// yoke/base/user_socket.h -- Unix sockets by which the processes of a user find each other on this machine.
//
// Any process may listen under any name. A socket is trusted only if the kernel says that its listener has the process
// id and the user that are in the socket's name.
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

/// Listens, without blocking, under a new name of `service` ("yoke" for launchers). `name` gets the name if it is not
/// null. Returns no descriptor if the kernel refuses; errno says why.
UniqueFd listen_as_user(std::string_view service, std::string* name = nullptr);

/// Parses a name of `service`. Returns nullopt for any other text.
std::optional<UserSocket> parse_user_socket(std::string_view service, std::string_view name);

/// Finds the sockets of `service` on which a process of user `uid` (of any user if it is 0) listens, in `text`, the
/// content of /proc/net/unix. They are in the order of their PIDs. Pure.
std::vector<UserSocket> find_user_sockets(std::string_view text, std::string_view service, int64_t uid);

/// The same for this machine, now. Errors  the error of errno if /proc/net/unix cannot be read.
std::vector<UserSocket> list_user_sockets(std::string_view service, int64_t uid);

/// kBusy: the listener has a full queue of connections, so that another try may succeed.
enum class Connected { kYes, kNo, kBusy };

/// Connects to `socket` with a descriptor that does not block. kNo also if the listener's PID or user is not the one in
/// the name. Errors  as errno says: out of descriptors.
Connected connect_to(const UserSocket& socket, UniqueFd& fd);

/// Accepts a connection that does not block, if one waits. Returns no descriptor otherwise; errno says why.
UniqueFd accept_connection(int listener);

/// The process and the user at the other end of a connection; nullopt if the kernel does not say.
struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
};
std::optional<Peer> peer_of(int connection);

/// When a process started, in clock ticks since boot: together with its PID it identifies the process. nullopt if /proc
/// does not have the process.
std::optional<int64_t> start_ticks_of(pid_t pid);

}  // namespace yoke

#include "yoke/base/user_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"

namespace yoke {
namespace {

struct AbstractAddress {
  sockaddr_un address = {};
  socklen_t size = 0;
  const sockaddr* pointer() const { return reinterpret_cast<const sockaddr*>(&address); }
};

/// Returns nullopt if the name is too long.
std::optional<AbstractAddress> abstract_address(std::string_view name) {
  AbstractAddress result;
  if (name.size() > sizeof result.address.sun_path - 1) return std::nullopt;
  result.address.sun_family = AF_UNIX;
  name.copy(result.address.sun_path + 1, name.size());
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

UniqueFd stream_socket() { return UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

}  // namespace

UniqueFd listen_as_user(std::string_view service, std::string* name) {
  auto fd = stream_socket();
  if (!fd) return {};
  const auto chosen = fmt::format("{}/{}/{}/{}", service, geteuid(), getpid(), random_digits(16));
  const auto address = abstract_address(chosen);
  if (!address || bind(fd.value(), address->pointer(), address->size) != 0 || listen(fd.value(), 64) != 0) return {};
  if (name != nullptr) *name = chosen;
  return fd;
}

/// Parses strictly: if leading zeros were accepted, one listener would have several names.
std::optional<UserSocket> parse_user_socket(std::string_view service, std::string_view name) {
  const auto uid_begin = service.size() + 1;
  if (!name.starts_with(service) || name.size() <= uid_begin || name[service.size()] != '/') return std::nullopt;
  const auto uid_end = name.find('/', uid_begin);
  const auto pid_end = uid_end == name.npos ? name.npos : name.find('/', uid_end + 1);
  if (pid_end == name.npos) return std::nullopt;
  const auto uid = parse_int(name.substr(uid_begin, uid_end - uid_begin));
  const auto pid = parse_int(name.substr(uid_end + 1, pid_end - uid_end - 1));
  if (!uid || !pid || *uid < 0 || *pid <= 0) return std::nullopt;
  const auto random = name.substr(pid_end + 1);
  if (random.size() != 16 || name != fmt::format("{}/{}/{}/{}", service, *uid, *pid, random)) return std::nullopt;
  return UserSocket{std::string(name), *uid, *pid};
}

std::vector<UserSocket> find_user_sockets(std::string_view text, std::string_view service, int64_t uid) {
  std::vector<UserSocket> result;
  for (const auto line : lines_of(text)) {
    // Num: RefCount Protocol Flags Type St Inode Path. '@' is the NUL of an abstract name. Flags 00010000: it listens.
    const auto at = line.find(" @");
    if (at == line.npos || line.find(" 00010000 0001 ") > at) continue;
    const auto socket = parse_user_socket(service, line.substr(at + 2));
    if (socket && (uid == 0 || uid == socket->uid)) result.push_back(*socket);
  }
  std::ranges::sort(result, [](const auto& a, const auto& b) { return a.pid < b.pid; });
  return result;
}

/// The kernel returns the list in pieces, so one reading can miss a socket if others are opened or closed meanwhile.
/// Three readings make it unlikely that a socket is missed.
std::vector<UserSocket> list_user_sockets(std::string_view service, int64_t uid) {
  std::vector<UserSocket> all;
  for (int i = 0; i < 3; ++i) {
    for (auto& socket : find_user_sockets(read_file("/proc/net/unix"), service, uid)) {
      const auto is_same = [&](const UserSocket& other) { return other.name == socket.name; };
      if (std::ranges::none_of(all, is_same)) all.push_back(std::move(socket));
    }
  }
  std::ranges::stable_sort(all, [](const UserSocket& a, const UserSocket& b) { return a.pid < b.pid; });
  return all;
}

Connected connect_to(const UserSocket& socket, UniqueFd& fd) {
  const auto address = abstract_address(socket.name);
  if (!address) return Connected::kNo;
  fd = stream_socket();
  if (!fd) throw system_error(errno, fmt::format("making a socket to ask process {}", socket.pid));
  if (connect(fd.value(), address->pointer(), address->size) != 0) {
    return errno == EAGAIN || errno == EINTR ? Connected::kBusy : Connected::kNo;
  }
  const auto peer = peer_of(fd.value());
  return peer && peer->pid == socket.pid && peer->uid == socket.uid ? Connected::kYes : Connected::kNo;
}

UniqueFd accept_connection(int listener) {
  return UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

std::optional<Peer> peer_of(int connection) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return Peer{peer.pid, peer.uid};
}

std::optional<int64_t> start_ticks_of(pid_t pid) {
  const auto text = text_of(fmt::format("/proc/{}/stat", pid));
  auto at = text.rfind(')');  // the process name before ')' may contain anything
  if (at == text.npos) return std::nullopt;
  for (int field = 2; field < 22 && at != text.npos; ++field) at = text.find(' ', at + 1);
  if (at == text.npos) return std::nullopt;
  return parse_int(std::string_view(text).substr(at + 1, text.find(' ', at + 1) - at - 1));
}

}  // namespace yoke

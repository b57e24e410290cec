#include "yoke/launch/process/master_port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "yoke/base/error.h"
#include "yoke/device/process/port_owner.h"

namespace yoke::launch {

namespace {

/// The first IPv4 address, which Gloo and torch's store handle most reliably, or an IPv6 address if there is none.
struct Resolved {
  sockaddr_storage address{};
  socklen_t size = 0;
};

Resolved resolve(const std::string& name) {
  const addrinfo hints{.ai_flags = AI_PASSIVE, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(name.c_str(), nullptr, &hints, &found); error != 0) {
    throw Error(ErrorCode::kNotFound, "cannot resolve the master address {}: {}", name, gai_strerror(error));
  }
  const auto* best = found;
  for (const auto* one = found; one != nullptr; one = one->ai_next) {
    if (one->ai_family == AF_INET) {
      best = one;
      break;
    }
  }
  Resolved result{.size = best->ai_addrlen};
  std::memcpy(&result.address, best->ai_addr, best->ai_addrlen);
  freeaddrinfo(found);
  return result;
}

bool is_loopback(const Resolved& resolved) {
  if (resolved.address.ss_family != AF_INET) return false;
  return ntohl(reinterpret_cast<const sockaddr_in&>(resolved.address).sin_addr.s_addr) >> 24 == 127;
}

bool is_number(const std::string& address) {
  in_addr ignored{};
  return inet_pton(AF_INET, address.c_str(), &ignored) == 1;
}

in_port_t& port_of(sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(address).sin_port;
}

/// Whether connections with this port remain in the kernel, as for a minute after the end of a job that used it. They
/// are no reason not to use the port. A socket that is bound by another job and does not listen is one, and the kernel
/// does not list it here.
bool has_connections(uint16_t port) {
  const auto end = fmt::format(":{:04X} ", port);
  for (const auto* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {  // "  0: LOCAL:PORT REMOTE:PORT ..."
      const auto colon = line.find(':', line.find(':') + 1);
      if (colon != line.npos && line.compare(colon, end.size(), end) == 0) return true;
    }
  }
  return false;
}

}  // namespace

void share_master_port(int socket) {
  const int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

UniqueFd claim_port(uint16_t port) {
  UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) throw system_error(errno, fmt::format("making a socket that reserves master port {}", port));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const auto name =
      fmt::format("yoke/port/{}", port);  // an abstract address disappears with the launcher in every case
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fd.value(), reinterpret_cast<sockaddr*>(&address), size) == 0) return fd;
  if (errno != EADDRINUSE) throw system_error(errno, fmt::format("taking master port {}", port));
  throw Error(ErrorCode::kUnavailable, "taking master port {}: a different job of yoke uses it", port);
}

MasterPort take_master_port(const std::string& address, std::optional<uint16_t> wanted, bool or_any) {
  auto resolved = resolve(address);
  // On Debian a host's own name resolves to 127.0.1.1, which no other host can reach. In this case the port is taken on
  // all addresses.
  if (or_any && is_loopback(resolved) && !is_number(address) && address != "localhost") {
    return take_master_port("0.0.0.0", wanted, false);
  }
  MasterPort result{UniqueFd(socket(resolved.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  const int fd = result.socket.value();
  if (fd < 0) throw system_error(errno, "making a socket for the master port");
  port_of(resolved.address) = htons(wanted.value_or(0));
  auto* const generic = reinterpret_cast<sockaddr*>(&resolved.address);
  const auto try_to_bind = [&] { return bind(fd, generic, resolved.size) == 0 ? 0 : errno; };
  int error_number = try_to_bind();
  if (error_number == EADDRINUSE && wanted && has_connections(*wanted)) {
    share_master_port(fd);
    error_number = try_to_bind();
  }
  if (error_number != 0) {
    if (error_number == EADDRNOTAVAIL && or_any) return take_master_port("0.0.0.0", wanted, false);
    if (error_number == EADDRNOTAVAIL) {
      throw Error(ErrorCode::kNotFound, "the master address {} is not an address of this machine", address);
    }
    const auto error = system_error(error_number, wanted ? fmt::format("taking master port {}", *wanted)
                                                         : fmt::format("taking a free port on {}", address));
    const auto who = wanted && error_number == EADDRINUSE ? device::who_listens(*wanted) : "";
    if (who.empty()) throw error;
    throw Error(error.code(), "{}: {} listens there", error.what(), who);
  }
  getsockname(fd, generic, &resolved.size);
  result.port = ntohs(port_of(resolved.address));
  return result;
}

}  // namespace yoke::launch

#include "yoke/launch/master_port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "yoke/base/error.h"

namespace yoke::launch {

MasterPort take_master_port(std::optional<uint16_t> wanted) {
  MasterPort result{UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  const int fd = result.socket.value();
  if (fd < 0) throw system_error(errno, "making the master's socket");
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);

  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(wanted.value_or(0));
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    if (!wanted) throw system_error(errno, "taking a free port on 127.0.0.1");
    const auto error = system_error(errno, fmt::format("taking master port {}", *wanted));
    throw Error(error.code(), "{}; without --master-port a free one is taken", error.what());
  }
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  result.port = ntohs(address.sin_port);
  return result;
}

}  // namespace yoke::launch

// yoke/dist/shared/firewall_test.h -- for tests: an address that gives no answer, as if packets to it were dropped.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <vector>

#include "yoke/base/file.h"

namespace yoke::dist::shared {

/// A listener of this machine whose queue is full, so that the kernel drops what would begin a further connection.
class Firewall {
 public:
  Firewall() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    where_.sin_family = AF_INET;
    where_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where_;
    bind(listener_.value(), reinterpret_cast<sockaddr*>(&where_), size);
    listen(listener_.value(), 0);
    getsockname(listener_.value(), reinterpret_cast<sockaddr*>(&where_), &size);
    for (bool is_taken = true; is_taken;) {  // of this machine, a connection is taken while connect() runs
      const auto& one = waiting_.emplace_back(begin_connection());
      pollfd polled{one.value(), POLLOUT, 0};
      is_taken = poll(&polled, 1, 100) > 0;
    }
  }

  /// As Listener::address().
  std::string address() const { return "127.0.0.1 " + std::to_string(ntohs(where_.sin_port)) + " " + kSecret; }

  /// A connection that ends with the error of one whose other side has given no answer for so long.
  UniqueFd silent_connection(std::chrono::milliseconds limit) const {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const auto time = static_cast<unsigned>(limit.count());
    setsockopt(fd.value(), IPPROTO_TCP, TCP_USER_TIMEOUT, &time, sizeof time);
    connect(fd.value(), reinterpret_cast<const sockaddr*>(&where_), sizeof where_);
    return fd;
  }

 private:
  static constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";

  UniqueFd begin_connection() const { return silent_connection(std::chrono::minutes(2)); }

  UniqueFd listener_;
  std::vector<UniqueFd> waiting_;
  sockaddr_in where_{};
};

}  // namespace yoke::dist::shared

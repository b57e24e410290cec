#include "yoke/launch/protocol.h"

#include <sys/socket.h>

#include <cerrno>

namespace yoke::launch {

void send_message(int fd, const Message& message) {
  while (send(fd, &message, sizeof message, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

std::optional<Message> receive_message(int fd) {
  Message message;
  while (true) {
    const auto count = recv(fd, &message, sizeof message, 0);
    if (count == sizeof message) return message;
    if (count < 0 && errno == EINTR) continue;
    return std::nullopt;
  }
}

}  // namespace yoke::launch

#include "yoke/launch/process/protocol.h"

#include <cerrno>
#include <iterator>
#include <span>

#include "yoke/base/error.h"

namespace yoke::launch {
void send_message(int fd, const Message& message, const std::vector<int>& descriptors) {
  if (send_with_fds(fd, std::as_bytes(std::span(&message, 1)), descriptors) || descriptors.empty()) return;
  if (errno != EPIPE && errno != ECONNRESET && errno != EBADF) {
    throw system_error(errno, "sending descriptors to the process that starts the ranks");
  }
}

std::optional<Message> receive_message(int fd, std::vector<UniqueFd>* descriptors) {
  Message message;
  std::vector<UniqueFd> received;
  const auto count = receive_with_fds(fd, std::as_writable_bytes(std::span(&message, 1)), received);
  if (count != sizeof message) return std::nullopt;
  if (descriptors != nullptr) std::move(received.begin(), received.end(), std::back_inserter(*descriptors));
  return message;
}

}  // namespace yoke::launch

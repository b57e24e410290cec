#include "yoke/base/line_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace yoke {
namespace {

constexpr size_t kMaxLineBytes = 1 << 16;

}  // namespace

void LineConnection::send(std::string_view line) {
  if (!fd_) return;
  const auto text = std::string(line) + '\n';
  const auto count = ::send(fd_.value(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count != static_cast<ssize_t>(text.size())) fd_.reset();
}

std::optional<std::string> LineConnection::take() {
  const auto end = received_.find('\n');
  if (end == received_.npos) return std::nullopt;
  auto line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return line;
}

std::optional<std::string> LineConnection::next(std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (true) {
    if (auto line = take()) return line;
    if (!fd_) return std::nullopt;
    std::array<char, 4096> buffer;
    const auto count = recv(fd_.value(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count > 0) {
      received_.append(buffer.data(), static_cast<size_t>(count));
      if (received_.size() > kMaxLineBytes) fd_.reset();
      continue;
    }
    if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      fd_.reset();
      return std::nullopt;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    if (left <= 0) return std::nullopt;
    pollfd news{fd_.value(), POLLIN, 0};
    poll(&news, 1, static_cast<int>(left));
  }
}

}  // namespace yoke

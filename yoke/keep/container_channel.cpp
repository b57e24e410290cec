#include "yoke/keep/detail/container_channel.h"

#include <sys/socket.h>

#include <cerrno>
#include <span>
#include <string>
#include <vector>

#include "yoke/base/json.h"
#include "yoke/base/json_text.h"
#include "yoke/base/process.h"

namespace yoke::keep {

bool send_message(const UniqueFd& channel, const Json& message, const UniqueFd& file) {
  const auto text = json_line(message);
  const int fd = file.value();
  if (send_with_fds(channel.value(), std::as_bytes(std::span(text)), {&fd, file ? size_t{1} : size_t{0}})) return true;
  const int error = errno;
  shutdown(channel.value(), SHUT_RDWR);
  errno = error;
  return false;
}

std::optional<Json> receive_message(const UniqueFd& channel, UniqueFd* file) {
  std::string text(1 << 18, '\0');  // more than the kernel takes for a message
  std::vector<UniqueFd> files;
  const auto count = receive_with_fds(channel.value(), std::as_writable_bytes(std::span(text)), files);
  if (count <= 0) return std::nullopt;
  if (file != nullptr && !files.empty()) *file = std::move(files[0]);
  text.resize(static_cast<size_t>(count));
  auto json = Json::parse(text, nullptr, false);
  return json.is_object() ? std::optional(std::move(json)) : std::nullopt;
}

}  // namespace yoke::keep

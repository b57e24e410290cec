#include "yoke/launch/process/protocol.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::launch {
namespace {

constexpr size_t kMaxDescriptors = 6;  // a rank of the session starter

/// As recvmsg wants it: aligned for cmsghdr.
struct Control {
  alignas(cmsghdr) char bytes[CMSG_SPACE(kMaxDescriptors * sizeof(int))] = {};
};

}  // namespace

void send_message(int fd, const Message& message, const std::vector<int>& descriptors) {
  iovec text{.iov_base = const_cast<Message*>(&message), .iov_len = sizeof message};
  msghdr header{.msg_iov = &text, .msg_iovlen = 1};
  Control control;
  if (!descriptors.empty()) {
    const auto size = descriptors.size() * sizeof(int);
    header.msg_control = control.bytes;
    header.msg_controllen = CMSG_SPACE(size);
    auto* first = CMSG_FIRSTHDR(&header);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(first), descriptors.data(), size);
  }
  if (send_descriptors(fd, header) || descriptors.empty()) return;
  if (errno != EPIPE && errno != ECONNRESET && errno != EBADF) {
    throw system_error(errno, "handing descriptors to the guardian process");
  }
}

std::optional<Message> receive_message(int fd, std::vector<UniqueFd>* descriptors) {
  Message message;
  iovec text{.iov_base = &message, .iov_len = sizeof message};
  Control control;
  msghdr header{
      .msg_iov = &text, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
  ssize_t count = 0;
  while ((count = recvmsg(fd, &header, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (count != sizeof message) return std::nullopt;
  for (auto* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= part->cmsg_len; ++i) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(part) + i * sizeof(int), sizeof received);
      UniqueFd owned(received);
      if (descriptors != nullptr) descriptors->push_back(std::move(owned));
    }
  }
  return message;
}

UniqueFd to_descriptor(std::string_view text) {
  UniqueFd fd(memfd_create("yoke", MFD_CLOEXEC));
  if (!fd) throw system_error(errno, "making a file in memory");
  write_all(fd.value(), std::as_bytes(std::span(text)), "a file in memory");
  return fd;
}

std::string text_of(const UniqueFd& descriptor) {
  std::string text;
  char buffer[1 << 16];
  ssize_t count = 0;
  while ((count = pread(descriptor.value(), buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0) {
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

}  // namespace yoke::launch

#include "yoke/claim/detail/note_lock.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "yoke/base/error.h"

namespace yoke::claim {
namespace {

struct flock whole_file(short type) {
  struct flock result {};
  result.l_type = type;
  result.l_whence = SEEK_SET;  // from the first byte to the last
  return result;
}

/// Whether a lock for reading is in the way. Everybody can take one, and yoke never does; it must not keep the owner of
/// the note from writing.
bool is_of_reader(int fd) {
  auto lock = whole_file(F_WRLCK);
  return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_RDLCK;
}

}  // namespace

std::optional<NoteLock> NoteLock::take(int fd, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  for (;;) {
    StopDelay delay;
    auto lock = whole_file(F_WRLCK);
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return NoteLock(fd, std::move(delay));
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) throw system_error(errno, "locking a note");
    if (is_of_reader(fd)) return NoteLock(-1, std::move(delay));
    if (std::chrono::steady_clock::now() > until) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
}

NoteLock::NoteLock(NoteLock&& other) noexcept : delay_(std::move(other.delay_)), fd_(std::exchange(other.fd_, -1)) {}

NoteLock::~NoteLock() {
  if (fd_ < 0) return;
  auto lock = whole_file(F_UNLCK);
  fcntl(fd_, F_OFD_SETLK, &lock);
}

UniqueFd open_for_writing(int fd) {
  UniqueFd result(open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY));
  if (!result) throw system_error(errno, "opening a note for writing");
  return result;
}

}  // namespace yoke::claim

#include "yoke/claim/detail/locked_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/claim/note.h"

namespace yoke::claim {
namespace {

std::string new_name(std::string_view prefix) {
  return fmt::format("{}{}-{}-{}", prefix, geteuid(), getpid(), random_digits(16));
}

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

bool try_lock(int fd, int kind) {
  while (flock(fd, kind | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) throw system_error(errno, "locking");
  }
  return true;
}

bool is_locked(int fd) {
  if (!try_lock(fd, LOCK_SH)) return true;
  flock(fd, LOCK_UN);
  return false;
}

std::string read_text(int fd) {
  std::string text(kMostNoteBytes, '\0');
  ssize_t count = 0;
  while ((count = pread(fd, text.data(), text.size(), 0)) < 0 && errno == EINTR) {
  }
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return text;
}

bool write_text(int fd, std::string text) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return false;
  const auto before = static_cast<size_t>(std::clamp<off_t>(status.st_size, 0, kMostNoteBytes));
  if (text.size() < before) text.resize(before, ' ');
  return pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

std::pair<std::string, UniqueFd> create_locked(const LockFolder& folder, std::string_view prefix) {
  constexpr int kMostTries = 100;
  for (int i = 0; i < kMostTries; ++i) {
    auto name = new_name(prefix);
    auto fd = folder.create(name);
    if (try_lock(fd.value(), LOCK_EX) && folder.is_current(fd.value(), name)) return {std::move(name), std::move(fd)};
    folder.remove(name);
  }
  throw Error(ErrorCode::kUnavailable, "others lock each new file in {} at once; `yoke claims` may show who",
              folder.path().string());
}

void remove_dead(const LockFolder& folder, const std::string& name, const std::function<void()>& before) {
  const auto fd = folder.open_existing(name);
  if (!fd || !try_lock(fd->value(), LOCK_SH) || !folder.is_current(fd->value(), name)) return;
  before();
  folder.remove(name);
}

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

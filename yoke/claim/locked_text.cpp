#include "yoke/claim/detail/locked_text.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/claim/note.h"

namespace yoke::claim {
namespace {

std::string new_name(std::string_view prefix) {
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) throw system_error(errno, "getting a random number");
  return fmt::format("{}{}-{}-{:016x}", prefix, geteuid(), getpid(), random);
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

}  // namespace yoke::claim

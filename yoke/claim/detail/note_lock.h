// yoke/claim/detail/note_lock.h -- excludes those who write into the same note: the process of the claim, its heirs,
// `yoke extend` and `yoke release`.
#pragma once

#include <chrono>
#include <optional>

#include "yoke/base/file.h"
#include "yoke/claim/ledger.h"

namespace yoke::claim {

/// A record lock (fcntl) of an open file description. It is independent of the flock that holds the claim. Nobody but
/// the owner of the note and root can hold it, because it takes a descriptor for writing. So, unlike with the lock of
/// all, a process that is stopped while it writes disturbs nobody else, and is never passed by.
class NoteLock {
 public:
  /// `fd`: opened for writing by this process, and shared with no other. nullopt: somebody held it for `limit`.
  static std::optional<NoteLock> take(int fd, std::chrono::milliseconds limit);
  NoteLock(NoteLock&& other) noexcept;
  NoteLock& operator=(NoteLock&&) = delete;
  ~NoteLock();

 private:
  /// `fd` -1: without the lock, because somebody disturbs by a lock for reading.
  NoteLock(int fd, StopDelay delay) : delay_(std::move(delay)), fd_(fd) {}

  StopDelay delay_;
  int fd_;
};

/// Another description of the file that `fd` has open, for writing. Errors  as errno says.
UniqueFd open_for_writing(int fd);

}  // namespace yoke::claim

// yoke/claim/detail/locked_text.h -- notes and tickets: small files of one user that a process of that user has locked,
// and how those who write into the same note (the claim's process, its heirs, `yoke extend`, `yoke release`) exclude
// each other.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "yoke/base/file.h"
#include "yoke/claim/folder.h"
#include "yoke/claim/ledger.h"

namespace yoke::claim {

/// flock() without waiting. Returns false if somebody holds the lock. Errors  as errno says.
bool try_lock(int fd, int kind);

/// Whether a process holds a note or a ticket. Holders use LOCK_EX. This function tries LOCK_SH, so that processes that
/// try at the same time do not take each other for holders.
bool is_locked(int fd);

/// A new file of this user that this process has locked. Another process may try its lock at the same moment, or take
/// it for one that was left behind and remove it; then a different file is made. Errors  those of LockFolder::create.
std::pair<std::string, UniqueFd> create_locked(const LockFolder& folder, std::string_view prefix);

/// Removes a note or a ticket of this user that nobody holds, after calling `before`. Its lock is kept meanwhile, so
/// that no process has just made the file.
void remove_dead(const LockFolder& folder, const std::string& name, const std::function<void()>& before);

std::string read_text(int fd);

/// Replaces the text of a file in place, since a new file would not have the lock. Blanks fill the rest, so that there
/// is no moment at which the text is shorter. Returns false if there is no space.
bool write_text(int fd, std::string text);

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

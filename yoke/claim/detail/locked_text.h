// yoke/claim/detail/locked_text.h -- notes and tickets: small files of one user that a process of that user has locked.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "yoke/base/file.h"
#include "yoke/claim/folder.h"

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

}  // namespace yoke::claim

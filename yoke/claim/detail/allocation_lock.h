// yoke/claim/detail/allocation_lock.h -- the lock that those hold who look for devices and take them.
//
// It only orders them. What decides are the locks of the devices and the notes, so somebody who holds it for too long
// (a process that is stopped or frozen, or a user who wants to disturb) is passed by.
#pragma once

#include <chrono>

#include "yoke/base/file.h"
#include "yoke/claim/folder.h"
#include "yoke/claim/ledger.h"

namespace yoke::claim {

/// The members end in the reverse order.
struct AllocationLock {
  StopDelay delay = {};
  UniqueFd fd = {};  ///< Empty: other processes held both locks for too long, and this one goes on without.
  bool has_passed_by = false;
  std::chrono::steady_clock::time_point begin = {};  ///< The time when it was taken, or a moment before.
};

/// Waits for the lock as `wait` says. Processes that do not get it wait for a second lock, so that they take turns. A
/// process that does not get the second lock within kSecondPatience goes on without a lock.
///
/// Errors  kUnavailable: LockWait::limit has passed. Those of LockFolder::open_shared for the first lock.
AllocationLock lock_allocation(const LockFolder& folder, const LockWait& wait);

inline constexpr std::chrono::milliseconds kSecondPatience(250);

}  // namespace yoke::claim

#include "yoke/claim/detail/allocation_lock.h"

#include <fmt/format.h>
#include <sys/file.h>

#include <string>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/claim/detail/locked_text.h"
#include "yoke/claim/detail/survey.h"

namespace yoke::claim {
namespace {

std::string locker_text(const LockFolder& folder) {
  struct stat status {};
  const auto fd = folder.open_existing(std::string(kAllocationName), 0, &status);
  if (!fd) return "somebody";
  const auto pid = locker_of(read_locks(), device_by_stat(status), status.st_ino);
  const auto facts = process_facts(pid);
  if (!facts) return "a process that cannot be seen from here";
  return fmt::format("process {} of {}", pid, user_text(facts->effective_uid.value_or(-1)));
}

/// nullopt: somebody holds it.
std::optional<AllocationLock> try_lock_allocation(const LockFolder& folder, std::string_view lock_name) {
  const std::string name(lock_name);
  auto fd = folder.open_shared(name);
  AllocationLock lock{.fd = std::move(fd), .begin = std::chrono::steady_clock::now()};
  if (!try_lock(lock.fd.value(), LOCK_EX) || !folder.is_current(lock.fd.value(), name)) return std::nullopt;
  return lock;
}

/// The same, but a file that is in the way is a lock that somebody holds: any user can put one there.
std::optional<AllocationLock> try_usable_lock(const LockFolder& folder, std::string_view lock_name) {
  try {
    return try_lock_allocation(folder, lock_name);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kFailedPrecondition) throw;
    return std::nullopt;
  }
}

}  // namespace

AllocationLock lock_allocation(const LockFolder& folder, const LockWait& wait) {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    if (auto lock = try_usable_lock(folder, kAllocationName)) return std::move(*lock);
    const auto waited = std::chrono::steady_clock::now() - begin;
    // Whoever waits for less long than the patience passes nobody by, however late it looks on a busy machine.
    if (waited >= wait.patience && wait.patience <= wait.limit) {
      auto second = try_usable_lock(folder, kSecondAllocationName);
      if (!second && waited >= wait.patience + kSecondPatience)
        second.emplace(AllocationLock{.begin = std::chrono::steady_clock::now()});
      if (second) {
        second->has_passed_by = true;
        return std::move(*second);
      }
    }
    if (waited > wait.limit) break;
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  throw Error(ErrorCode::kUnavailable,
              "{} holds {} for longer than the few milliseconds that programs need it; try again, and wait for longer",
              locker_text(folder), folder.path_of(std::string(kAllocationName)).string());
}

}  // namespace yoke::claim

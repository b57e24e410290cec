// yoke/claim/kernel_locks.h -- who holds which lock: the kernel's list in /proc/locks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::claim {

/// A lock by flock(2), or a file lease. `pid` is the process that took it. It may have ended if a child inherited the
/// descriptor, and then a different process may have its number.
struct KernelLock {
  std::string device;  ///< "00:1a", as the kernel writes it, which can differ from st_dev.
  uint64_t inode = 0;
  pid_t pid = 0;
  bool is_shared = false;  ///< By LOCK_SH.

  bool operator==(const KernelLock&) const = default;
};

/// Parses /proc/locks, or the lines "lock:" of /proc/self/fdinfo/N. Locks of other kinds (`kind` may also be "LEASE")
/// and waiting processes are left out. Pure.
std::vector<KernelLock> parse_locks(std::string_view text, std::string_view kind = "FLOCK");

/// All locks of this machine that this PID namespace shows; empty if /proc/locks cannot be read.
std::vector<KernelLock> read_locks(std::string_view kind = "FLOCK");

/// The device of a file on which this process holds a lock by `fd`, as /proc/locks writes it; empty if not known.
std::string device_of_lock(int fd);

/// A process, as far as the kernel tells it.
struct ProcessFacts {
  std::optional<int64_t> real_uid, effective_uid;
  std::optional<int64_t> start_ticks;
  bool is_stopped = false;  ///< By SIGSTOP, Ctrl-Z or a debugger.
};
/// nullopt: there is no such process, or it is hidden.
std::optional<ProcessFacts> process_facts(pid_t pid);

/// Whether a descriptor of `pid` is the file with this inode. nullopt: that may not be looked at.
std::optional<bool> has_open(pid_t pid, uint64_t inode);

}  // namespace yoke::claim

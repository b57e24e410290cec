// yoke/launch/process/descendants.h -- finds and ends the descendants of this process, including daemons.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace yoke::launch {

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  bool is_zombie = false;
  uint64_t start_ticks = 0;  ///< Distinguishes this process from a later one with the same pid.
};

inline constexpr std::chrono::milliseconds kCleaningTime{1000};

/// Makes this process, instead of init, the parent of orphaned descendants, so that a double fork does not escape it.
void become_subreaper();

/// Returns the descendants that one pass over /proc finds. Processes that start during the pass may be missing.
std::vector<Process> descendants();

/// The same for another process.
std::vector<Process> descendants_of(pid_t ancestor);

/// Sends a signal through a pidfd, after a check that the pid has not been reused. Without effect if the process has
/// ended or may not be signalled.
void signal_process(const Process& process, int signal);

/// Kills (SIGKILL) and reaps all descendants except those in `keep` and their descendants. Repeats this until none is
/// left or `patience` is over, because a process that is blocked in the kernel does not end. Processes that
/// is_cleaner() names are killed only after kCleaningTime; otherwise semaphores and shared memory would stay in
/// /dev/shm. Returns the remaining processes. Signals go through a pidfd, after a check that the pid has not been
/// reused. REQUIRES: one thread; this process is a subreaper; SIGCHLD is blocked.
std::vector<Process> end_descendants(const std::vector<pid_t>& keep, std::chrono::milliseconds patience);

/// Sends a signal once to each descendant in process group `group`. Members of the group that are not descendants get
/// no signal.
void signal_descendants(pid_t group, int signal);

/// Whether the process only waits for the end of others, to remove their semaphores and shared memory, and then ends:
/// Python's resource_tracker, and torch_shm_manager.
bool is_cleaner(pid_t pid);

/// Returns the name of a process, as in /proc/PID/comm; "a process" if it cannot be read. Its text is printable.
std::string process_name(pid_t pid);

/// Whether this process has a child that it has not reaped, running or not.
bool has_children();

}  // namespace yoke::launch

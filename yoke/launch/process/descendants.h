// yoke/launch/process/descendants.h -- finds and ends the descendants of this process, including daemons.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
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

/// Makes this process, instead of init, the parent of orphaned descendants, so that a double fork does not escape it.
void become_subreaper();

/// Returns the descendants that one pass over /proc finds. Processes that start during the pass may be missing.
std::vector<Process> descendants();

/// Sends a signal through a pidfd, after a check that the pid has not been reused. Without effect if the process has
/// ended or may not be signalled.
void signal_process(const Process& process, int signal);

/// Kills (SIGKILL) and reaps all descendants except those in `keep` and their descendants. Repeats this until none is
/// left or `patience` is over, because a process that is blocked in the kernel does not end. Returns the remaining
/// processes. Signals go through a pidfd, after a check that the pid has not been reused. REQUIRES: one thread; this
/// process is a subreaper; SIGCHLD is blocked.
std::vector<Process> end_descendants(const std::vector<pid_t>& keep, std::chrono::milliseconds patience);

/// Sends a signal once to each descendant in process group `group`. Members of the group that are not descendants get
/// no signal.
void signal_descendants(pid_t group, int signal);

/// Whether this process has a child that it has not reaped, running or not.
bool has_children();

}  // namespace yoke::launch

// yoke/launch/process/descendants.h -- the processes below this one, however they try to leave, and their end.
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
  bool is_zombie = false;
  uint64_t start_ticks = 0;  ///< With pid: this process and no later one of the same number.
};

/// Makes orphans below this process its children instead of init's, so that nobody leaves by a double fork.
void become_subreaper();

/// All processes below this one, from one reading of /proc; new ones may appear meanwhile.
std::vector<Process> descendants();

/// Kills (SIGKILL) and reaps all descendants except those in `keep` and what is below these, again and again until none
/// is left or `patience` is over: a process inside the kernel does not die. Returns those that are left then.
/// A process is killed by pidfd, and only after a second look says that it still is who it was.
/// REQUIRES: one thread; this process is a subreaper; SIGCHLD is blocked.
std::vector<Process> end_descendants(const std::vector<pid_t>& keep, std::chrono::milliseconds patience);

/// Sends a signal to the descendants that are in process group `group`, to each of them once. For a group that others,
/// who are no descendants, are in too.
void signal_descendants(pid_t group, int signal);

/// Whether this process has a child, dead or alive, that has not been waited for.
bool has_children();

}  // namespace yoke::launch

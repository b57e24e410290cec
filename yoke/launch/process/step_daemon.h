// yoke/launch/process/step_daemon.h -- finds out whether Slurm has already given the ranks a signal that it gave their
// launcher.
//
// slurmstepd, which runs a step of Slurm on a node, passes on the signals of scancel and `sbatch --signal`. With
// proctrack/linuxproc every process of the step gets them, the last descendants first. With proctrack/cgroup only the
// tasks do, and with proctrack/pgid only the process groups of the tasks, which are the launchers. A launcher cannot
// tell these cases apart by its own signal. The guardian can: it is a descendant of the launcher in a process group of
// its own, as the ranks are, and it blocks all signals, so one that it got stays pending.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace yoke::launch {

struct Ancestor {
  pid_t pid = 0;
  std::string name;  ///< As in /proc/PID/comm.
};

/// Returns the ancestors of this process as far as /proc shows them, its parent first.
std::vector<Ancestor> ancestors();

/// Returns the slurmstepd of the step that a process with these ancestors runs in; 0 if there is none.
pid_t step_daemon_of(const std::vector<Ancestor>& ancestors);

/// Whether the ranks already have a signal that the launcher wants to send them. `daemon`: the slurmstepd that may have
/// sent it to the ranks, or 0. `guardians`: who sent the signal that was pending at the guardian; nullopt if none was.
/// `since_start`: the time since the last rank was started. slurmstepd does not see a rank that starts at that moment,
/// so new ranks get the signal again rather than not at all.
bool have_ranks(pid_t daemon, std::optional<pid_t> guardians, std::chrono::milliseconds since_start);

/// Takes a pending, blocked signal from this process. Returns the process that sent it; nullopt if none is pending.
std::optional<pid_t> take_pending(int signal);

}  // namespace yoke::launch

// yoke/launch/process/signals.h -- reads the signals of a launcher from a descriptor.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "yoke/base/file.h"

namespace yoke::launch {

/// After this call, a write that would raise `signal` (SIGPIPE, SIGXFSZ) fails with EPIPE or EFBIG instead of ending
/// this process. The signal gets a handler instead of being ignored, because exec removes handlers. So ranks have the
/// disposition that this process started with.
void fail_instead_of(int signal);

/// Blocks `stop_signals`, SIGUSR1, SIGUSR2, the job control signals and SIGCHLD permanently, and calls
/// fail_instead_of() for SIGPIPE and SIGXFSZ. Signals that were ignored when this process was started stay ignored, as
/// nohup and a shell's background jobs require. Returns a non-blocking signalfd. Because SIGTTOU is blocked, output
/// from the background does not stop this process.
UniqueFd take_signals(const std::vector<int>& stop_signals);

struct Signal {
  int number = 0;
  /// True if the kernel sent the signal to the whole process group, because of a key (Ctrl-C) or a read in the
  /// background. False if a process called kill(), or the terminal has hung up (the kernel tells only the session
  /// leader).
  bool is_from_terminal = false;
  pid_t sender = 0;  ///< The process that called kill(); 0 if the kernel sent the signal.
};

/// Returns the next pending signal, or nullopt if there is none.
std::optional<Signal> next_signal(const UniqueFd& signals);

/// Whether `signal` stops a process: SIGTSTP (Ctrl-Z), SIGTTIN, SIGTTOU.
bool is_job_control(int signal);

/// Stops this process, as the signal would if it were not blocked. Returns when the process is continued, or at once if
/// the process group is orphaned: then the kernel ignores the signal, because nothing could continue the process.
void stop_by(int signal);

}  // namespace yoke::launch

// yoke/launch/process/signals.h -- the signals of a launcher, read from a descriptor.
#pragma once

#include <optional>
#include <vector>

#include "yoke/base/file.h"

namespace yoke::launch {

/// From now on a write that would raise `signal` (SIGPIPE, SIGXFSZ) fails with EPIPE or EFBIG and does not end this
/// process. The signal gets a handler and is not ignored: exec removes handlers, so ranks have the disposition that
/// this process started with.
void fail_instead_of(int signal);

/// Blocks `stop_signals`, SIGUSR1, SIGUSR2, the job control signals and SIGCHLD permanently, and calls
/// fail_instead_of() for SIGPIPE and SIGXFSZ. Signals that were ignored when this process was started stay ignored, as
/// nohup and background jobs of a shell require. Returns a non-blocking signalfd. Since SIGTTOU is blocked, output from
/// the background does not stop this process.
UniqueFd take_signals(const std::vector<int>& stop_signals);

struct Signal {
  int number = 0;
  /// True: the kernel sent it to the whole process group, because of a key (Ctrl-C) or a read in the background. False:
  /// a process called kill(), or the terminal has hung up, of which the kernel informs only the session leader.
  bool is_from_terminal = false;
};

/// The next pending signal; nullopt: none.
std::optional<Signal> next_signal(const UniqueFd& signals);

/// Whether `signal` stops a process: SIGTSTP (Ctrl-Z), SIGTTIN, SIGTTOU.
bool is_job_control(int signal);

/// Stops this process, as the signal would have done if it were not blocked. Returns when the process is continued, or
/// at once if the kernel ignores the signal because the process group is orphaned and nothing could continue it.
void stop_by(int signal);

}  // namespace yoke::launch

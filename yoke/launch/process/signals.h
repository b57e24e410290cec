// yoke/launch/process/signals.h -- the signals of a launcher, as a descriptor.
#pragma once

#include <optional>
#include <vector>

#include "yoke/base/file.h"

namespace yoke::launch {

/// A write that would raise `signal` (SIGPIPE, SIGXFSZ) fails from now on with EPIPE or EFBIG and does not end this
/// process. By a handler, which exec takes away again: ranks have the signal as this process had it.
void fail_instead_of(int signal);

/// Blocks `stop_signals`, SIGUSR1, SIGUSR2, the signals of job control and SIGCHLD for good, and lets writes to a pipe
/// without a reader, or beyond the limit of file sizes, fail instead of ending this process. Signals that were ignored
/// when we started stay ignored: nohup, or a shell's background job, wants it so. The result is a signalfd that does
/// not block. Since SIGTTOU is blocked, what this process writes in the background never stops it.
UniqueFd take_signals(const std::vector<int>& stop_signals);

struct Signal {
  int number = 0;
  /// It came from the kernel, for a key (Ctrl-C) or an attempt to read in the background, and so to the whole process
  /// group. Else somebody called kill(), for this process or for more of them; or the terminal has hung up, which the
  /// kernel tells the leader of a session alone.
  bool is_from_terminal = false;
};

/// The next one; nullopt: none.
std::optional<Signal> next_signal(const UniqueFd& signals);

/// Whether it stops a process (Ctrl-Z): SIGTSTP, SIGTTIN, SIGTTOU.
bool is_job_control(int signal);

/// Does what the signal would have done, had it not been taken: returns when this process was continued, or at once
/// where the kernel ignores it, for nobody could continue us (the process group is orphaned).
void stop_by(int signal);

}  // namespace yoke::launch

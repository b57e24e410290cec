// yoke/launch/process/signals.h -- the signals of a launcher, as a descriptor.
#pragma once

#include <vector>

#include "yoke/base/file.h"

namespace yoke::launch {

/// Blocks `stop_signals`, SIGUSR1, SIGUSR2 and SIGCHLD for good, ignores SIGPIPE, and lets writes beyond the
/// limit of file sizes fail instead of ending this process (SIGXFSZ). Those that were ignored when we
/// started stay ignored: nohup, or a shell's background job, wants it so. The result is a signalfd that does not block.
UniqueFd take_signals(const std::vector<int>& stop_signals);

/// The next one; 0: none.
int next_signal(const UniqueFd& signals);

}  // namespace yoke::launch

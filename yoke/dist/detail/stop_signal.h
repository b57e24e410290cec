// yoke/dist/detail/stop_signal.h -- records signals that ask this process to stop.
#pragma once

#include <vector>

namespace yoke::dist {

/// From now on each of `signals` sets a flag and then calls the program's own handler, if there is one. A signal that
/// is ignored stays ignored. A signal that an earlier call named is left unchanged, because the program may have
/// replaced our handler since then. The handlers are never removed, so that a second signal does not kill a program
/// that has begun to save.
/// Errors  kInvalidArgument: a number is not that of a signal that can be handled.
void heed_stop_signals(const std::vector<int>& signals);

/// Returns whether one of the signals has arrived, on any thread.
bool is_told_to_stop();

}  // namespace yoke::dist

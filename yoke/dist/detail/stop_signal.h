// yoke/dist/detail/stop_signal.h -- records signals that ask this process to stop.
#pragma once

#include <vector>

namespace yoke::dist {

/// Installs a handler for each of `signals`. The handler sets a flag and then calls the program's own handler, if there
/// is one. An ignored signal stays ignored. If an earlier call installed the handler for a signal, this call does not
/// change it, because the program may have replaced the handler since then. The handlers are never removed, so that a
/// second signal does not kill a program that has begun to save.
/// Errors  kInvalidArgument: a number is not that of a signal that can be handled.
void heed_stop_signals(const std::vector<int>& signals);

/// Returns whether any of the signals has arrived in this process.
bool is_told_to_stop();

}  // namespace yoke::dist

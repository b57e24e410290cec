// yoke/dist/detail/stop_signal.h -- records signals that ask this process to stop.
#pragma once

#include <cstdint>
#include <vector>

namespace yoke::dist {

/// Installs a handler for each of `signals`. The handler sets a flag and then calls the program's own handler, if there
/// is one. An ignored signal stays ignored. If an earlier call installed the handler for a signal, this call does not
/// change it, because the program may have replaced the handler since then. The handlers are never removed, so that a
/// second signal does not kill a program that has begun to save.
///
/// SIGINT is different, because users press Ctrl-C again when a program does not end: the first one writes `notice`, if
/// it is not null, to standard error, and a second one has its default effect. `notice` must live until the process
/// ends. Errors  kInvalidArgument: a number is not that of a signal that can be handled.
void heed_stop_signals(const std::vector<int>& signals, const char* notice = nullptr);

/// Returns whether any of the signals has arrived in this process.
bool is_told_to_stop();

/// Pure. Whether a SIGINT at `now_ns` is a second request. Launchers and `timeout` may deliver one Ctrl-C twice, one
/// directly after the other, so another SIGINT within half a second of the first one is the same request.
bool is_second_interrupt(int64_t first_ns, int64_t now_ns);

}  // namespace yoke::dist

// yoke/cli/frame/attempt.h -- makes every command end: after an error with a message, and if a driver hangs, without
// waiting for its child process.
#pragma once

#include <functional>
#include <string>

#include "yoke/cli/command.h"

namespace yoke::cli {

/// The beginning of every message on standard error: "yoke devices: ", or "yoke: " before a command is known.
std::string speaker(const Context& context);

/// Runs `work` and returns its result. Prints an exception on standard error and returns the exit status for it.
int report_errors(Context& context, const std::function<int()>& work);

/// Runs `work` in a child process and returns its exit status. `work` may call `finish(status)`, which does not return.
/// This process then ends and does not wait for the child, because a driver may hold a thread of the child in the
/// kernel. Otherwise the command behaves as if it had no child: the child uses the same terminal and streams, gets the
/// signals sent to this process, and gets SIGTERM if this process is killed.
/// REQUIRES: the calling process has one thread.  Errors  kUnavailable: no child can be started.
int attempt_in_child(Context& context, const std::function<int(const std::function<void(int)>& finish)>& work);

}  // namespace yoke::cli

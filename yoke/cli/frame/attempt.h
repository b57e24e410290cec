// yoke/cli/frame/attempt.h -- runs a command so that it always ends: after an error it ends with a message, and if a
// driver hangs, it ends and leaves its child process behind.
#pragma once

#include <functional>
#include <string>

#include "yoke/cli/command.h"

namespace yoke::cli {

/// The beginning of every message on standard error: "yoke devices: ", or "yoke: " before a command is known.
std::string speaker(const Context& context);

/// Runs `work`. Prints an exception on standard error and turns it into the exit status.
int report_errors(Context& context, const std::function<int()>& work);

/// Runs `work` in a child process and returns its exit status. `work` may call `finish(status)`, which does not return:
/// this process then ends and leaves the child behind, because the child cannot end while a driver holds one of its
/// threads in the kernel. Terminal, streams and signals work as if there were no child: signals sent to this process
/// are passed on, and the child gets SIGTERM if this process is killed.
/// Errors  kUnavailable: no child can be started. REQUIRES: the caller has one thread.
int attempt_in_child(Context& context, const std::function<int(const std::function<void(int)>& finish)>& work);

}  // namespace yoke::cli

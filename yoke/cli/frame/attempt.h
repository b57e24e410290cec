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

/// Like program::attempt_in_child(), but reports what `work` throws, and writes what is in the buffer of the output.
/// REQUIRES: the calling process has one thread.  Errors  kUnavailable: no child can be started.
int attempt_in_child(Context& context, const std::function<int(const std::function<void(int)>& finish)>& work);

}  // namespace yoke::cli

// yoke/cli/attempt.h -- running a command so that neither an error nor a hung driver keeps it from ending.
#pragma once

#include <functional>
#include <string>

#include "yoke/cli/command.h"

namespace yoke::cli {

/// "yoke devices: ", which begins every message on standard error; of `yoke` itself "yoke: ".
std::string speaker(const Context& context);

/// Runs `work`; what it throws is printed on standard error, and becomes the exit status.
int report_errors(Context& context, const std::function<int()>& work);

/// Runs `work` in a child and returns its exit status. `work` may call `finish(status)`, which does not return: the
/// child is then left behind, for a thread that a driver holds in the kernel keeps a process from ever ending.
/// Terminal, signals (those sent to this process are passed on) and streams are as if there were no child; when this
/// process is killed, the child gets SIGTERM.
/// Errors  kUnavailable when no child can be started. REQUIRES: the caller has one thread.
int attempt_in_child(Context& context, const std::function<int(const std::function<void(int)>& finish)>& work);

}  // namespace yoke::cli

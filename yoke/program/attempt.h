// yoke/program/attempt.h -- does work that a driver may hold for ever in a child process, and never waits for one that
// is held.
#pragma once

#include <functional>

namespace yoke::program {

/// Runs `work` in a child process and returns its exit status. `work` may call `finish(status)`, which does not return.
/// This process then ends and does not wait for the child, because a driver may hold a thread of the child in the
/// kernel. Otherwise the command behaves as if it had no child: the child uses the same terminal and streams, gets the
/// signals sent to this process, and gets SIGTERM if this process is killed.
/// REQUIRES: the calling process has one thread; nothing is in the buffers of its streams, also when `work` returns or
/// finishes; `work` throws nothing.  Errors  kUnavailable: no child can be started.
int attempt_in_child(const std::function<int(const std::function<void(int)>& finish)>& work);

}  // namespace yoke::program

// yoke/program/attempt.h -- does work that a driver may hold for ever in a child process, and never waits for one that
// is held.
#pragma once

#include <functional>

namespace yoke::program {

/// What becomes of a signal that was forwarded to a child which ended without it, as one does that had just exited.
enum class ForwardedSignal {
  kDropped,  ///< The caller ends with the child's status.
  kRaised,   ///< The caller goes on, so the signal acts on this process after the child's end.
};

/// Runs `work` in a child process and returns its exit status. `work` may call `finish(status)`, which does not return.
/// This process then ends and does not wait for the child, because a driver may hold a thread of the child in the
/// kernel. Otherwise the command behaves as if it had no child: the child uses the same terminal and streams, gets the
/// signals sent to this process, and gets SIGTERM if this process is killed.
/// REQUIRES: the calling process has one thread; nothing is in the buffers of its streams, also when `work` returns or
/// finishes; `work` throws nothing.  Errors  kUnavailable: no child can be started.
int attempt_in_child(const std::function<int(const std::function<void(int)>& finish)>& work,
                     ForwardedSignal forwarded = ForwardedSignal::kDropped);

}  // namespace yoke::program

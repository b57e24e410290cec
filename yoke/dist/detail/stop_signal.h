// yoke/dist/detail/stop_signal.h -- signals that ask this process to stop, kept until somebody looks.
#pragma once

#include <vector>

namespace yoke::dist {

/// From now on each of `signals` sets a flag, and then does what the program's own handler of it did, if there was one.
/// A signal that is ignored stays ignored. Signals that are heeded already are left alone, so that a handler installed
/// since then keeps its place: it has replaced ours, and calls it or not. Nothing is undone at the end: a program that
/// has begun to save must not die of a second signal.
/// Errors  kInvalidArgument: a number is no signal, or one that cannot be handled.
void heed_stop_signals(const std::vector<int>& signals);

/// Whether one of them has come to this process, on whichever thread.
bool is_told_to_stop();

}  // namespace yoke::dist

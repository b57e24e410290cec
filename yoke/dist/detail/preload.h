// yoke/dist/detail/preload.h -- the program's side of `yoke run --preload`: before main it waits, and ranks are forked
// from it.
#pragma once

namespace yoke::dist {

/// Returns at once unless this process was started to be preloaded (YOKE_PRELOAD_FD, yoke/base/preload.h). Then it
/// never returns in this process, which ends with its guardian; it returns in every rank, which is a process of its own
/// with its environment, descriptors and CPUs, a child of the guardian. Called before libtorch has done any work and
/// before the plug is loaded: neither threads nor a GPU's driver survive a fork.
void serve_ranks_if_preloaded() noexcept;

}  // namespace yoke::dist

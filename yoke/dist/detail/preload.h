// yoke/dist/detail/preload.h -- the program's side of `yoke run --preload`: the program waits before main, and ranks
// are forked from it.
#pragma once

namespace yoke::dist {

/// Returns at once unless this process was started to be preloaded (YOKE_PRELOAD_FD, yoke/contract/preload.h). A
/// preloaded process stays in this function and ends with its guardian. The function returns in each rank, which is
/// forked from the preloaded process. A rank has its own environment, descriptors and CPUs, and is a child of the
/// guardian. REQUIRES: libtorch has done no work and the plug is not loaded, since neither threads nor a GPU's driver
/// survive a fork.
void serve_ranks_if_preloaded() noexcept;

}  // namespace yoke::dist

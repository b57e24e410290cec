// yoke/launch/process/guardian.h -- the process that starts the ranks and outlives the launcher just long enough to end
// them.
#pragma once

#include <sys/resource.h>

#include <string>
#include <vector>

#include "yoke/base/file.h"

namespace yoke::launch {

struct GuardianOptions {
  UniqueFd control;            ///< Its end of the protocol's socket pair.
  std::vector<int> keep_open;  ///< Other descriptors of the launcher that ranks inherit.
  rlimit file_limit{};         ///< What the ranks get, whatever the launcher raised its own to.
  bool has_terminal = false;   ///< Some plan may name the launcher's process group.
  std::string folder;          ///< Made at the start, and removed once the launcher is gone; empty: none.
};

/// Starts ranks when it is told to, and does to them what it is told; at the launcher's end of file, and after the last
/// rank, it ends all that is left of them: children that were orphaned, daemons with sessions of their own. It lives
/// until the launcher has gone, so that somebody is there at each moment to tidy up. One thread, no decisions.
/// REQUIRES: called in a fresh fork of the launcher, which has one thread.
[[noreturn]] void guard(GuardianOptions options);

}  // namespace yoke::launch

// yoke/launch/guardian.h -- the process that starts the ranks and outlives the launcher just long enough to end them.
#pragma once

#include <sys/resource.h>

#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/plan.h"

namespace yoke::launch {

/// What a rank writes to, a pipe or a file; none: as its plan says, the launcher's own or /dev/null.
struct RankOutput {
  UniqueFd out;
  UniqueFd err;
};

struct GuardianOptions {
  const std::vector<RankPlan>* ranks = nullptr;
  std::vector<RankOutput> outputs;     ///< One for each rank.
  UniqueFd control;                    ///< Its end of the protocol's socket pair.
  rlimit file_limit{};                 ///< What the ranks get, whatever the launcher raised its own to.
  std::vector<int> close_after_start;  ///< Held for ranks only (the master's socket).
  std::string folder;  ///< Made at the start, and removed if the launcher is gone at the end; empty: none.
};

/// Runs the ranks and does what it is told; at the launcher's end of file, and after the last rank, it ends all that is
/// left of them: children that were orphaned, daemons with sessions of their own. Then it waits to be released, so that
/// somebody is there at each moment to tidy up. One thread, no decisions.
/// REQUIRES: called in a fresh fork of the launcher, which has one thread.
[[noreturn]] void guard(GuardianOptions options);

}  // namespace yoke::launch

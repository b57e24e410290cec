// yoke/launch/guardian.h -- the process that starts the ranks and outlives the launcher just long enough to end them.
#pragma once

#include <sys/resource.h>

#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/plan.h"

namespace yoke::launch {

/// The ends of a rank's output pipes that it writes to; none where it inherits the launcher's.
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
};

/// Runs the ranks and does what it is told; at the launcher's end of file, and after the last rank, it ends all that is
/// left of them: children that were orphaned, daemons with sessions of their own. One thread, no decisions.
/// REQUIRES: called in a fresh fork of the launcher, which has one thread.
[[noreturn]] void guard(GuardianOptions options);

}  // namespace yoke::launch

// yoke/profile/joint_steps.h -- the steps that all ranks have in common, and how long ranks wait for each other in
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "yoke/profile/account.h"

namespace yoke::profile {

/// A step on all ranks. The time that the last rank to enter a collective spends in it is communication. The additional
/// time of the other ranks is waiting.
struct JointStep {
  std::vector<const Step*> ranks;
  int64_t communication_ns = 0;
  std::vector<int64_t> waiting_ns;  ///< How long each rank waited.
  std::vector<int64_t> late_ns;     ///< For each rank, the longest wait for it in each collective it entered last.
  int64_t length_ns() const;        ///< The length on the rank that took longest.
};

/// Returns the steps whose number is in all accounts, in order. The results point into `ranks`.
std::vector<JointStep> join_steps(const std::vector<RankAccount>& ranks);

}  // namespace yoke::profile

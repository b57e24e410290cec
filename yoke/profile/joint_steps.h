// yoke/profile/joint_steps.h -- the steps that all ranks have, and how long ranks wait for each other in them.
#pragma once

#include <cstdint>
#include <vector>

#include "yoke/profile/account.h"

namespace yoke::profile {

/// A step on all ranks. The time of a collective on the rank that enters it last is communication; the rest is waiting.
struct JointStep {
  std::vector<const Step*> ranks;
  int64_t communication_ns = 0;
  std::vector<int64_t> waiting_ns;  ///< How long each rank waited.
  std::vector<int64_t> late_ns;     ///< How long the others waited, charged to the rank that came last.
  int64_t length_ns() const;        ///< The length on the rank that took longest.
};

/// The steps whose number is in all accounts, in order. The results point into `ranks`.
std::vector<JointStep> join_steps(const std::vector<RankAccount>& ranks);

}  // namespace yoke::profile

// yoke/profile/account.h -- where one rank's time went, step by step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/profile/causes.h"
#include "yoke/profile/trace.h"

namespace yoke::profile {

/// One collective of a step.
struct Collective {
  size_t key = 0;           ///< Equal on all ranks for collectives with the same name and process group.
  int64_t duration_ns = 0;  ///< Includes the wait for the last rank.
  int64_t exposed_ns = 0;  ///< Communication during which this rank does not compute, until the next collective starts.
};

struct Step {
  int64_t number = 0;
  int64_t length_ns = 0;
  /// How much shorter the step would be, at most, without each cause. Communication and skew are 0 here, because
  /// they can be told apart only by comparing all ranks.
  std::array<int64_t, kNumCauses> lost_ns = {};
  std::vector<Collective> collectives;
  int64_t computing_ns = 0;    ///< Time in which the device, or without one this process, computes.
  int64_t unexplained_ns = 0;  ///< Time in which nothing computes and no event says why.
  int64_t num_syncs = 0;
  int64_t num_operations = 0;  ///< Number of kernels; without a device, of operations not called by operations.
};

struct RankAccount {
  std::string path;
  int64_t rank = 0;
  std::optional<int64_t> world_size;
  HostFacts host;
  bool has_device = false;
  bool has_steps = false;     ///< False: the trace marks no steps, so all of it counts as one step.
  double pageable_share = 0;  ///< Share of copying time that copies of pageable memory take.
  /// For each cause, the name of the events that took most of its time; empty if the cause has no events of its own.
  std::array<std::string, kNumCauses> largest_part;
  int64_t num_without_duration = 0;
  bool is_truncated = false;
  std::vector<Step> steps;
};

/// Accounts for the time of a trace. A trace that does not tell its rank is taken for rank 0's.
RankAccount account_for(const Trace& trace);

}  // namespace yoke::profile

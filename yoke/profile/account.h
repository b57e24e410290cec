// yoke/profile/account.h -- where one rank's time went, step by step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "yoke/profile/causes.h"
#include "yoke/profile/phases.h"
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
  /// For each cause, the time by which the step would be shorter at most without the cause. Communication and skew are
  /// 0 here, because only a comparison of all ranks can tell them apart.
  std::array<int64_t, kNumCauses> lost_ns = {};
  std::vector<Collective> collectives;
  /// The parts of `length_ns`. Waiting is 0 here, and counts as communication.
  std::array<int64_t, kNumPhases> phase_ns = {};
  int64_t computing_ns = 0;    ///< Time in which the device computes; without a device, in which this process computes.
  int64_t unexplained_ns = 0;  ///< Time in which nothing computes and no event says why.
  int64_t num_syncs = 0;
  int64_t num_operations = 0;  ///< Number of kernels; without a device, of operations that no other operation calls.
};

struct RankAccount {
  std::string path;
  int64_t rank = 0;
  std::optional<int64_t> world_size;
  HostFacts host;
  bool has_device = false;
  bool has_steps = false;     ///< Whether the trace marks steps; see Window in timeline.h.
  double pageable_share = 0;  ///< Share of the copying time that is spent on copies of pageable memory.
  /// For each cause, the name of the events that took most of its time; empty if no events belong to the cause.
  std::array<std::string, kNumCauses> largest_part;
  /// The time in all steps of each name: of kernels and copies; without a device, of the training thread's operations
  /// without those that they call.
  std::vector<std::pair<std::string, int64_t>> operation_ns;
  int64_t num_without_duration = 0;
  bool is_truncated = false;
  std::vector<Step> steps;
};

/// Divides the time of a trace by cause. If the trace does not contain its rank, rank 0 is assumed.
RankAccount account_for(const Trace& trace);

}  // namespace yoke::profile

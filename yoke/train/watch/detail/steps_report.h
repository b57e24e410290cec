// yoke/train/watch/detail/steps_report.h -- where the time of a Run's steps goes, in the form of `yoke profile --json`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/train/watch/detail/slowdown.h"

namespace yoke::train::detail {

struct WatchedSteps {
  /// Of each rank the same number of windows, of `steps_per_window` steps each.
  const std::vector<std::vector<PhaseTimes>>& ranks;
  int64_t steps_per_window = 0;
  int64_t first_step = 0;
  bool has_device = false;
  std::optional<Slowdown> slowdown = {};
};

/// The report as JSON, for `yoke profile --compare`; docs/profile.md describes the members. REQUIRES: there are ranks
/// and windows.
std::string steps_report(const WatchedSteps& steps);

}  // namespace yoke::train::detail

// yoke/claim/report.h -- hours of claims by user and device. Pure.
#pragma once

#include <vector>

#include "yoke/claim/history.h"

namespace yoke::claim {

/// What a user had of a device in some time.
struct ReportRow {
  int64_t uid = 0;
  std::string key;
  int64_t num_claims = 0;
  std::chrono::seconds held = {};
  std::chrono::seconds idle = {};  ///< The part of `held` in which no process computed on the devices of the claim.
  std::chrono::seconds idle_unknown = {};  ///< The part of `held` for which that is not known.

  bool operator==(const ReportRow&) const = default;
};

/// From `from` until `now`, sorted by user and device. REQUIRES: `uses` are of all_uses().
std::vector<ReportRow> report_uses(const std::vector<Use>& uses, Time from, Time now);

}  // namespace yoke::claim

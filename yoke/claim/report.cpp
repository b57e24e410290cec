#include "yoke/claim/report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace yoke::claim {

std::vector<ReportRow> report_uses(const std::vector<Use>& uses, Time from, Time now) {
  using std::chrono::seconds;
  std::map<std::pair<int64_t, std::string>, ReportRow> rows;
  for (const auto& use : uses) {
    const auto whole = std::chrono::duration_cast<seconds>(use.end.value_or(now) - use.since);
    const auto begin = std::max(use.since, from), end = std::min(use.end.value_or(now), now);
    // Times are in whole seconds, so a short claim has none; it is counted all the same.
    if (end < begin || (end == begin && use.since < from)) continue;
    const auto held = std::chrono::duration_cast<seconds>(end - begin);
    // When in the claim it was idle is not known, so of a part of it the same share was.
    const auto share = whole.count() > 0 ? static_cast<double>(held.count()) / static_cast<double>(whole.count()) : 0;
    for (const auto& key : std::set<std::string>(use.keys.begin(), use.keys.end())) {
      auto& row = rows[{use.uid, key}];
      row.uid = use.uid;
      row.key = key;
      ++row.num_claims;
      row.held += held;
      if (use.idle_seconds) {
        row.idle += seconds(std::lround(static_cast<double>(*use.idle_seconds) * share));
      } else {
        row.idle_unknown += held;
      }
    }
  }
  std::vector<ReportRow> result;
  for (auto& [key, row] : rows) result.push_back(std::move(row));
  return result;
}

}  // namespace yoke::claim

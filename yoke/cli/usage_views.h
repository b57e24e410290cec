// yoke/cli/usage_views.h -- what `yoke watch` found, as text, JSON and a drawing: pure functions of values.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "yoke/device/usage_report.h"

namespace yoke::cli {

/// What is to be said beside the numbers.
struct UsageNotes {
  std::string program;  ///< As the user typed it, or "process 4121".
  std::vector<std::string> sentences;
};

/// A table, a timeline of each device, and the notes; lines of at most `width` columns where they can be.
std::string usage_text(const device::UsageReport& report, const UsageNotes& notes, int64_t width);

/// docs/watch.md has the contract.
nlohmann::ordered_json usage_json(const device::UsageReport& report, const UsageNotes& notes);

/// A drawing for a page: no scripts, no fonts from elsewhere, readable on light and dark backgrounds.
std::string usage_svg(const device::UsageReport& report, const UsageNotes& notes);

/// What the numbers do not say by themselves: short runs, gaps, throttling.
std::vector<std::string> remarks(const device::UsageReport& report);

/// `timeline` in `width` characters of eight heights, " " where nothing is known; 0 % is the lowest.
std::string sparkline(const std::vector<device::UsageBin>& timeline, int64_t width);

}  // namespace yoke::cli

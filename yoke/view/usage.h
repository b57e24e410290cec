// yoke/view/usage.h -- shows the report of `yoke watch` as text, JSON and a drawing. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "yoke/device/usage_report.h"

namespace yoke::view {

/// Data for the report besides the numbers.
struct UsageNotes {
  std::string program;  ///< The command as the user typed it, or "process 4121".
  std::vector<std::string> sentences;
};

/// Returns a table, a timeline of each device, and the notes. Only long notes may exceed `width` columns.
std::string usage_text(const device::UsageReport& report, const UsageNotes& notes, int64_t width);

/// Returns the JSON that docs/watch.md describes.
nlohmann::ordered_json usage_json(const device::UsageReport& report, const UsageNotes& notes);

/// Draws the report for a web page. The SVG has no scripts and no external fonts, and suits light and dark backgrounds.
std::string usage_svg(const device::UsageReport& report, const UsageNotes& notes);

/// Returns remarks about facts that the numbers do not show: short runs, gaps, throttling.
std::vector<std::string> remarks(const device::UsageReport& report);

/// Returns the mean of the values that are known; nullopt if none is.
std::optional<double> mean_of(std::span<const device::UsageBin> bins, std::optional<double> device::UsageBin::*value);

/// Draws `timeline` as at most `width` characters of eight heights. The lowest is 0 %; " " is a bin without a value.
std::string sparkline(const std::vector<device::UsageBin>& timeline, int64_t width);

}  // namespace yoke::view

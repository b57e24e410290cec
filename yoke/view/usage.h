// yoke/view/usage.h -- the report of `yoke watch` as text, JSON and a drawing. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "yoke/device/usage_report.h"

namespace yoke::view {

/// The facts of the report besides the numbers.
struct UsageNotes {
  std::string program;  ///< The command as the user typed it, or "process 4121".
  std::vector<std::string> sentences;
};

/// A table, a timeline of each device, and the notes. Lines have at most `width` columns, except long notes.
std::string usage_text(const device::UsageReport& report, const UsageNotes& notes, int64_t width);

/// docs/watch.md describes the format.
nlohmann::ordered_json usage_json(const device::UsageReport& report, const UsageNotes& notes);

/// A drawing for a web page. It has no scripts and no external fonts, and is readable on light and dark backgrounds.
std::string usage_svg(const device::UsageReport& report, const UsageNotes& notes);

/// Remarks that the numbers do not show by themselves: short runs, gaps, throttling.
std::vector<std::string> remarks(const device::UsageReport& report);

/// `timeline` as at most `width` characters of eight heights. The lowest height is 0 %; " " marks bins without a value.
std::string sparkline(const std::vector<device::UsageBin>& timeline, int64_t width);

}  // namespace yoke::view

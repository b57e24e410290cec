// yoke/web/prometheus.h -- formats a snapshot for Prometheus. docs/metrics.md has the names.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "yoke/device/device.h"

namespace yoke::web {

/// Returns text exposition format 0.0.4. An unknown value has no sample, and no series appears twice. Text of other
/// users (process and device names) is made printable, cut and escaped. Command lines are left out.
/// `claims`: what view::claims_json() returns; null if it is not known who has claimed what.
std::string to_prometheus(const device::Snapshot& snapshot, const nlohmann::ordered_json& claims = nullptr);

/// Formats `text` as the value of a label, without quotes around it: printable, cut to `max_bytes` and escaped.
std::string label_value(std::string_view text, size_t max_bytes);

}  // namespace yoke::web

// yoke/web/prometheus.h -- a snapshot in the format of Prometheus. docs/metrics.md has the names.
#pragma once

#include <string>
#include <string_view>

#include "yoke/device/device.h"

namespace yoke::web {

/// Text exposition format 0.0.4. A value that is not known has no sample, and no series appears twice. Text of other
/// users (process and device names) is made printable, cut and escaped. Command lines are left out.
std::string to_prometheus(const device::Snapshot& snapshot);

/// `text` as the value of a label without quotes around it: printable, cut to `max_bytes` and escaped.
std::string label_value(std::string_view text, size_t max_bytes);

}  // namespace yoke::web

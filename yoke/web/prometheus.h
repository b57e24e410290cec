// yoke/web/prometheus.h -- a snapshot as Prometheus reads it. docs/metrics.md has the names.
#pragma once

#include <string>
#include <string_view>

#include "yoke/device/device.h"

namespace yoke::web {

/// Text exposition format 0.0.4. What is not known has no sample; no name and labels appear twice. Text of other users
/// (process and device names) is made printable, cut and escaped; command lines are left out.
std::string to_prometheus(const device::Snapshot& snapshot);

/// `text` as the value of a label, without the quotes around it: printable, at most `max_bytes` of it, escaped.
std::string label_value(std::string_view text, size_t max_bytes);

}  // namespace yoke::web

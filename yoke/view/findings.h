// yoke/view/findings.h -- the findings of `yoke doctor` as text. Pure.
#pragma once

#include <string>
#include <vector>

#include "yoke/device/doctor/doctor.h"

namespace yoke::view {

/// Returns a line for each finding: status, id, devices, what was found, and what to do about it.
std::string findings_text(const std::vector<device::Finding>& findings, bool is_colored);

}  // namespace yoke::view

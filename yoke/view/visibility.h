// yoke/view/visibility.h -- which devices a program would see, and why, as text and JSON. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "yoke/device/device.h"
#include "yoke/device/visibility/visibility.h"

namespace yoke::view {

/// The variables with their effect, the devices that programs see and those that are hidden, and the warnings.
/// REQUIRES: `visibility` is about the devices of `snapshot`.
std::string visibility_text(const device::Visibility& visibility, const device::Snapshot& snapshot);

/// docs/visible.md describes the format.
nlohmann::ordered_json visibility_json(const device::Visibility& visibility, const device::Snapshot& snapshot);

}  // namespace yoke::view

// yoke/view/visibility.h -- shows which devices a program would see, and why, as text and JSON. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "yoke/device/device.h"
#include "yoke/device/visibility/visibility.h"

namespace yoke::view {

/// Returns the variables with their effect, the devices that programs see, the hidden devices, and the warnings.
/// REQUIRES: `visibility` is about the devices of `snapshot`.
std::string visibility_text(const device::Visibility& visibility, const device::Snapshot& snapshot);

/// Returns the JSON that docs/visible.md describes.
nlohmann::ordered_json visibility_json(const device::Visibility& visibility, const device::Snapshot& snapshot);

}  // namespace yoke::view

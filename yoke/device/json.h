// yoke/device/json.h -- snapshots as JSON: what `--json` prints, and the lines of a recording. docs/devices.md has the
// contract.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "yoke/device/device.h"

namespace yoke::device {

/// Objects with every key of the contract, null for what is not known. Text is made valid UTF-8.
nlohmann::ordered_json to_json(const Device& device);
nlohmann::ordered_json to_json(const DeviceProcess& process);
nlohmann::ordered_json to_json(const Snapshot& snapshot);

/// The snapshot of a recording's line. Unknown keys are ignored, missing ones are nullopt.
/// Errors  kDataLoss: not JSON, or not of this form.
Snapshot snapshot_from_json(std::string_view line);

}  // namespace yoke::device

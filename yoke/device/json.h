// yoke/device/json.h -- snapshots as JSON: the output of `--json` and the lines of a recording. docs/devices.md has the
// contract.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "yoke/device/device.h"

namespace yoke::device {

/// Returns an object with every key of the contract. Unknown values are null. Text is made valid UTF-8.
nlohmann::ordered_json to_json(const Device& device);
nlohmann::ordered_json to_json(const DeviceProcess& process);
nlohmann::ordered_json to_json(const Snapshot& snapshot);

/// Adds "command", "user" and so on to the object `json`; unknown values are null.
void write_json(const ProcessInfo& info, nlohmann::ordered_json& json);
void read_json(const nlohmann::ordered_json& json, ProcessInfo& info);

/// Adds "container", "slurm" and so on to the object `json`; unknown values are null.
void write_json(const Origin& origin, nlohmann::ordered_json& json);
void read_json(const nlohmann::ordered_json& json, Origin& origin);

/// Parses a line of a recording. Unknown keys are ignored, missing ones become nullopt.
/// Errors  kDataLoss if the line is not JSON, or not a snapshot.
Snapshot snapshot_from_json(std::string_view line);

}  // namespace yoke::device

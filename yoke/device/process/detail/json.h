// yoke/device/process/detail/json.h -- writes the data about a process as JSON. docs/devices.md has the members.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "yoke/device/process/info.h"
#include "yoke/device/process/origin.h"

namespace yoke::device {

/// Adds "command", "user" and so on to the object `json`; unknown values are null.
void write_json(const ProcessInfo& info, nlohmann::ordered_json& json);
void read_json(const nlohmann::ordered_json& json, ProcessInfo& info);

/// Adds "container", "slurm" and so on to the object `json`; unknown values are null.
void write_json(const Origin& origin, nlohmann::ordered_json& json);
void read_json(const nlohmann::ordered_json& json, Origin& origin);

}  // namespace yoke::device

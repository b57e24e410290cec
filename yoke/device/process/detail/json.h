// yoke/device/process/detail/json.h -- what is known of a process as JSON. docs/devices.md has the members.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "yoke/device/process/info.h"
#include "yoke/device/process/origin.h"

namespace yoke::device {

/// "command", "user" and so on into `json`, an object; null for what is not known.
void write_json(const ProcessInfo& info, nlohmann::ordered_json& json);
void read_json(const nlohmann::ordered_json& json, ProcessInfo& info);

/// "container", "slurm" and so on into `json`, an object; null for what is not known.
void write_json(const Origin& origin, nlohmann::ordered_json& json);
void read_json(const nlohmann::ordered_json& json, Origin& origin);

}  // namespace yoke::device

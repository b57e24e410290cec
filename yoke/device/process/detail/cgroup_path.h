// yoke/device/process/detail/cgroup_path.h -- finds containers, Slurm jobs, and systemd's units and sessions in the
// names of cgroups.
#pragma once

#include <string>
#include <string_view>

#include "yoke/device/process/origin.h"

namespace yoke::device {

/// Parses the content of /proc/PID/cgroup, of version 1, 2 or both. If containers are nested, returns the innermost.
Origin parse_cgroup(std::string_view text);

/// Returns the usual name of a step: "0" for "step_0" or "0", "batch" for Slurm's number of it, "4294967291".
std::string slurm_step_name(std::string_view text);

}  // namespace yoke::device

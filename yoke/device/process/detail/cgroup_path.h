// yoke/device/process/detail/cgroup_path.h -- finds containers, Slurm jobs, and systemd's units and sessions from the
// names of cgroups.
#pragma once

#include <string>
#include <string_view>

#include "yoke/device/process/origin.h"

namespace yoke::device {

/// `text` is /proc/PID/cgroup, of version 1, 2 or both. If containers are nested, returns the innermost one.
Origin parse_cgroup(std::string_view text);

/// "step_0", "0", "4294967291" (Slurm's number for the batch script) become the usual names "0" and "batch".
std::string slurm_step_name(std::string_view text);

}  // namespace yoke::device

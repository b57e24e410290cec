// yoke/device/process/detail/cgroup_path.h -- what the names of cgroups tell: containers, Slurm jobs, systemd's units
// and sessions.
#pragma once

#include <string>
#include <string_view>

#include "yoke/device/process/origin.h"

namespace yoke::device {

/// `text` is /proc/PID/cgroup, of version 1, 2 or both. Of nested containers the innermost.
Origin parse_cgroup(std::string_view text);

/// "step_0", "0", "4294967291" (Slurm's number of the batch script) as people write them: "0", "batch".
std::string slurm_step_name(std::string_view text);

}  // namespace yoke::device

// yoke/device/process/detail/cgroup_path.h -- finds containers, Slurm jobs, and systemd's units and sessions in the
// names of cgroups.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "yoke/device/process/origin.h"

namespace yoke::device {

/// Parses the content of /proc/PID/cgroup, of version 1, 2 or both. If containers are nested, returns the innermost.
Origin parse_cgroup(std::string_view text);

/// A step in a cgroup of version 2 that names the job by its SLUID, as Slurm 26.05 does unless cgroup.conf has
/// CgroupJobIdPaths=yes: "/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0". The number of the job is
/// not in it; the title of the slurmstepd in step_*/slurm has it.
struct SluidGroup {
  std::string job_path;  ///< Up to the SLUID.
  std::string step;      ///< "0"; empty if the path ends before.

  bool operator==(const SluidGroup&) const = default;
};
/// Source: cgroup.conf(5) and sluid2str() in src/common/sluid.c of Slurm: "s" and 13 digits of Crockford's base 32.
std::optional<SluidGroup> find_sluid_group(std::string_view text);

/// Returns the usual name of a step: "0" for "step_0" or "0", "batch" for Slurm's number of it, "4294967291".
std::string slurm_step_name(std::string_view text);

}  // namespace yoke::device

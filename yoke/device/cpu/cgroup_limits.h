// yoke/device/cpu/cgroup_limits.h -- what the control groups of this process allow, of version 1, 2 or both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace yoke::device {

/// The least of what the groups and those above them allow.
struct CgroupLimits {
  std::optional<double> cpus;  ///< Time of so many processors.
  std::optional<int64_t> memory_bytes;
  std::optional<int64_t> memory_used_bytes;             ///< Of memory_bytes; without files that the kernel can drop.
  std::optional<int64_t> num_processes, max_processes;  ///< Threads count.
  int64_t num_out_of_memory_kills = 0;

  bool operator==(const CgroupLimits&) const = default;
};

/// Reads /proc/self/cgroup and /sys/fs/cgroup below `sysroot`. What is not there does not limit.
CgroupLimits read_cgroup_limits(const std::filesystem::path& sysroot = "/");

/// CgroupLimits::cpus alone, for who has no time for the rest.
std::optional<double> read_cgroup_cpus(const std::filesystem::path& sysroot = "/");

}  // namespace yoke::device

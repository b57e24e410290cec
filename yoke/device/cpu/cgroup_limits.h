// yoke/device/cpu/cgroup_limits.h -- the limits of this process's control groups, version 1, 2 or both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace yoke::device {

/// Each limit is the minimum over this process's groups and their ancestors.
struct CgroupLimits {
  std::optional<double> cpus;  ///< The limit of CPU time, in CPUs.
  std::optional<int64_t> memory_bytes;
  std::optional<int64_t> memory_used_bytes;             ///< Used memory, without cached files that can be dropped.
  std::optional<int64_t> num_processes, max_processes;  ///< Threads count as processes.
  int64_t num_out_of_memory_kills = 0;

  bool operator==(const CgroupLimits&) const = default;
};

/// Reads /proc/self/cgroup and /sys/fs/cgroup below `sysroot`. A missing file means no limit.
CgroupLimits read_cgroup_limits(const std::filesystem::path& sysroot = "/");

/// Reads only CgroupLimits::cpus. Faster than read_cgroup_limits().
std::optional<double> read_cgroup_cpus(const std::filesystem::path& sysroot = "/");

}  // namespace yoke::device

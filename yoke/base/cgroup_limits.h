// yoke/base/cgroup_limits.h -- the limits of a process's control groups, version 1, 2 or both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace yoke {

/// Each limit is the minimum over the process's groups and their ancestors.
struct CgroupLimits {
  std::optional<double> cpus;  ///< The limit of CPU time, in CPUs.
  std::optional<int64_t> memory_bytes;
  std::optional<int64_t> memory_used_bytes;  ///< Used memory, without cached files that can be dropped.
  std::optional<int64_t> memory_left_bytes;  ///< What the fullest group leaves; it need not have the smallest limit.
  std::optional<int64_t> num_processes, max_processes;  ///< Threads count as processes.
  int64_t num_out_of_memory_kills = 0;

  bool operator==(const CgroupLimits&) const = default;
};

/// Reads /proc/PROCESS/cgroup and /sys/fs/cgroup below `sysroot`; `process` is a PID, or "self" for this process. A
/// missing file means no limit.
CgroupLimits read_cgroup_limits(const std::filesystem::path& sysroot = "/", const std::string& process = "self");

/// The memory that programs can use which start now: what is free on this host, and no more than the cgroups of this
/// process leave. Returns 0 if the kernel does not tell.
int64_t available_memory_bytes(const std::filesystem::path& sysroot = "/");

/// Reads only CgroupLimits::cpus, which is faster.
std::optional<double> read_cgroup_cpus(const std::filesystem::path& sysroot = "/");

}  // namespace yoke

// yoke/device/cpu/count.h -- counts the CPUs and NUMA nodes that this process may use.
#pragma once

#include <cstdint>
#include <filesystem>

#include "yoke/base/cpu_set.h"

namespace yoke::device {

struct CpuCount {
  int64_t num_cpus = 1;        ///< CPUs in the affinity mask (taskset, cgroup cpuset, Slurm).
  int64_t num_numa_nodes = 1;  ///< NUMA nodes that have at least one of the allowed CPUs.
};

/// Reads the affinity mask and sysfs. A machine without NUMA information has one node.
CpuCount count_cpus();

/// Counts the nodes in `sysfs_nodes` (/sys/devices/system/node) whose cpulist has one of the `allowed` CPUs, at least
/// 1.
int64_t count_numa_nodes(const std::filesystem::path& sysfs_nodes, const CpuSet& allowed);

}  // namespace yoke::device

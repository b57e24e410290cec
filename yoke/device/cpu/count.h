// yoke/device/cpu/count.h -- the processors and memory nodes that this process may use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace yoke::device {

struct CpuCount {
  int64_t num_cpus = 1;        ///< Processors in the affinity mask (taskset, cgroup cpuset, Slurm).
  int64_t num_numa_nodes = 1;  ///< Memory nodes that have at least one of the allowed processors.
};

/// Reads the affinity mask and sysfs. A machine without NUMA information has one node.
CpuCount count_cpus();

/// "0-3,8,10-11" as the kernel writes lists of processors; parts that do not parse are left out.
std::vector<int> parse_cpu_list(std::string_view text);

/// Number of nodes under `sysfs_nodes` (/sys/devices/system/node) whose cpulist has one of `allowed`; at least 1.
int64_t count_numa_nodes(const std::filesystem::path& sysfs_nodes, const std::vector<int>& allowed);

}  // namespace yoke::device

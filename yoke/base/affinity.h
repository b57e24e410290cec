// yoke/base/affinity.h -- sets which CPUs and which memory the calling process uses.
#pragma once

#include <vector>

#include "yoke/base/cpu_set.h"

namespace yoke {

/// A set of CPUs or NUMA nodes as the bit mask that system calls take. An empty mask means no preference.
using KernelMask = std::vector<unsigned long>;
KernelMask to_kernel_mask(const CpuSet& set);

/// The CPUs on which the calling thread may run: its affinity mask, which taskset, cpusets and Slurm narrow.
CpuSet allowed_cpus();

/// Sets a preference: if a container forbids it, the process runs without it. These two functions are
/// async-signal-safe.
void prefer_cpus(const KernelMask& cpus);
void prefer_memory(const KernelMask& nodes);

}  // namespace yoke

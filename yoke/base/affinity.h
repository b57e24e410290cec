// yoke/base/affinity.h -- sets which CPUs and which memory the calling process uses.
#pragma once

#include <vector>

#include "yoke/base/cpu_set.h"

namespace yoke {

/// A set of CPUs or NUMA nodes as the bit mask that system calls take. An empty mask means no preference.
using KernelMask = std::vector<unsigned long>;
KernelMask to_kernel_mask(const CpuSet& set);

/// Sets a preference: if a container forbids it, the process runs without it. Both functions are async-signal-safe.
void prefer_cpus(const KernelMask& cpus);
void prefer_memory(const KernelMask& nodes);

}  // namespace yoke

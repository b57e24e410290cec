// yoke/base/affinity.h -- gives the calling process its CPUs and the memory near them.
#pragma once

#include <vector>

#include "yoke/base/cpu_set.h"

namespace yoke {

/// A set of CPUs or nodes as the kernel has it; empty: no wish.
using KernelMask = std::vector<unsigned long>;
KernelMask to_kernel_mask(const CpuSet& set);

/// Preferences: what a container's rules refuse, the process does without. Both may be called between fork and exec.
void prefer_cpus(const KernelMask& cpus);
void prefer_memory(const KernelMask& nodes);

}  // namespace yoke

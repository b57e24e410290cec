// yoke/launch/plan/share_cpus.h -- divides CPUs among ranks that share them. Pure; used only by bind.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "yoke/base/cpu_set.h"

namespace yoke::launch {

struct Sharer {
  std::string pci_bus_id;  ///< The sharer's device. Sharers are sorted by it.
  CpuSet near;             ///< The CPUs nearest to the device; empty: all are equally near.
};

/// Returns a set for each sharer. The sets are disjoint if there are enough CPUs. Aims, the most important first: an
/// even division; CPUs near the device; few sets per sharer at each level. `levels` are partitions of the machine, from
/// coarse (such as NUMA nodes) to fine; the last one has the cores. A core is divided only if there are more sharers
/// than cores.
std::vector<CpuSet> share_cpus(const CpuSet& cpus, const std::vector<Sharer>& sharers,
                               const std::vector<std::vector<CpuSet>>& levels);

// bind.cpp uses these functions too, to choose nodes.

/// Divides `cpus` by `sets`. CPUs in no set form one more part. Parts are ordered by their first CPUs; none is empty.
std::vector<CpuSet> partition(const std::vector<CpuSet>& sets, const CpuSet& cpus);

/// Returns how many sets in `cores` contain one of `cpus`.
int64_t count_cores(const std::vector<CpuSet>& cores, const CpuSet& cpus);

/// Returns the range [begin, end) of part `i` if `count` things are divided as evenly as possible. The bounds for n
/// parts are also bounds for 2n parts. So 4 ranks on 6 cores in 2 caches get 2, 1, 2, 1 cores, and no rank gets cores
/// of both caches.
std::pair<size_t, size_t> block(size_t i, size_t count, size_t num_parts);

}  // namespace yoke::launch

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
  std::string pci_bus_id;  ///< The device; sharers are sorted by it.
  CpuSet near;             ///< The CPUs nearest to the device; empty: all are equally near.
};

/// Returns a set for each sharer; the sets are disjoint if there are enough CPUs. Aims, the most important first: an
/// even division; CPUs near the device; few sets per sharer at each level. `levels` are partitions of the machine from
/// coarse (such as NUMA nodes) to fine, the last one into cores. A core is divided only if there are fewer cores than
/// sharers.
std::vector<CpuSet> share_cpus(const CpuSet& cpus, const std::vector<Sharer>& sharers,
                               const std::vector<std::vector<CpuSet>>& levels);

// bind.cpp uses these functions too, to choose nodes.

/// Divides `cpus` among `sets`. The CPUs that are in no set are one more part. Parts are in the order of their first
/// CPUs, and none is empty.
std::vector<CpuSet> partition(const std::vector<CpuSet>& sets, const CpuSet& cpus);

/// The number of sets in `cores` that contain one of `cpus`.
int64_t count_cores(const std::vector<CpuSet>& cores, const CpuSet& cpus);

/// The range [begin, end) of part `i` if `count` things are divided as evenly as possible. The bounds for n parts are
/// also bounds for 2n parts. So 4 ranks on 6 cores in 2 caches get 2, 1, 2, 1 cores, each rank within one cache.
std::pair<size_t, size_t> block(size_t i, size_t count, size_t num_parts);

}  // namespace yoke::launch

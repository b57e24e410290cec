// yoke/launch/plan/share_cpus.h -- divides CPUs between ranks that have to share them. Pure; used by bind.cpp alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "yoke/base/cpu_set.h"

namespace yoke::launch {

struct Sharer {
  std::string pci_bus_id;  ///< Ranks are put into the order of their devices.
  CpuSet near;             ///< CPUs beside the device; empty: all are equal.
};

/// A set for each sharer, disjoint if there is a CPU for each. Even, then near, then in as few of the sets of a level
/// as that allows: `levels` are ways to divide a machine, from coarse to fine, cores last. A core is divided only when
/// there are fewer cores than sharers.
std::vector<CpuSet> share_cpus(const CpuSet& cpus, const std::vector<Sharer>& sharers,
                               const std::vector<std::vector<CpuSet>>& levels);

// The parts, which the choice of nodes needs too.

/// The `sets` as far as they are within `cpus`, and what of it no set has; in order, without empty ones.
std::vector<CpuSet> partition(const std::vector<CpuSet>& sets, const CpuSet& cpus);

/// Those that have one of `cpus`.
int64_t count_cores(const std::vector<CpuSet>& cores, const CpuSet& cpus);

/// [begin, end) of what part `i` of `num_parts` gets of `count` things, as evenly as can be. The bounds of few parts
/// are among those of their multiple: 4 ranks on 6 cores in caches of 3 get 2, 1, 2, 1, and none has two caches.
std::pair<size_t, size_t> block(size_t i, size_t count, size_t num_parts);

}  // namespace yoke::launch

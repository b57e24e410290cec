// yoke/device/topology/locality.h -- computes from hwloc's topology what cpu/locality.h reads from sysfs.
#pragma once

#include <vector>

#include "yoke/device/cpu/locality.h"
#include "yoke/device/topology/topology.h"

namespace yoke::device {

/// If the topology does not say which CPUs are allowed, all are.
CpuLocality cpu_locality(const Topology& topology);

/// Returns the localities of the GPUs, sorted by bus id.
std::vector<DeviceLocality> gpu_localities(const Topology& topology);

}  // namespace yoke::device

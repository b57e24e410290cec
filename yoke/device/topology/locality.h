// yoke/device/topology/locality.h -- what cpu/locality.h reads from sysfs, from hwloc's topology instead.
#pragma once

#include <string_view>
#include <vector>

#include "yoke/device/cpu/locality.h"
#include "yoke/device/topology/topology.h"

namespace yoke::device {

/// All CPUs are allowed where the topology does not say which are.
CpuLocality cpu_locality(const Topology& topology);

/// Of the GPUs, in order of their bus ids.
std::vector<DeviceLocality> gpu_localities(const Topology& topology);

}  // namespace yoke::device

// yoke/device/topology/locality.h -- computes from hwloc's topology what cpu/locality.h reads from sysfs.
#pragma once

#include <string_view>
#include <vector>

#include "yoke/device/cpu/locality.h"
#include "yoke/device/topology/topology.h"

namespace yoke::device {

/// All CPUs are allowed if the topology does not say which are.
CpuLocality cpu_locality(const Topology& topology);

/// The localities of the GPUs, in order of their bus ids.
std::vector<DeviceLocality> gpu_localities(const Topology& topology);

}  // namespace yoke::device

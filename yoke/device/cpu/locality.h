// yoke/device/cpu/locality.h -- which CPUs are close to each other or to a device. `yoke run` binds ranks by it.
//
// It is read from a few files of sysfs, because hwloc would take a launcher too long. topology/locality.h computes the
// same from hwloc's file of a different machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/cpu_set.h"

namespace yoke::device {

/// A NUMA node that has CPUs.
struct NodeLocality {
  int64_t number = 0;
  CpuSet cpus;  ///< All CPUs, allowed or not; the same holds for `packages`.

  bool operator==(const NodeLocality&) const = default;
};

struct CpuLocality {
  CpuSet allowed;  ///< CPUs that this process may use, by affinity mask and cpuset.
  std::vector<NodeLocality> nodes;
  std::vector<CpuSet> packages;
  std::vector<CpuSet> caches;       ///< Last-level caches of several cores that have an allowed CPU.
  std::vector<CpuSet> cores;        ///< Hardware threads of each core that has an allowed one.
  CpuSet memory_nodes;              ///< Those `nodes` whose memory this process may use.
  std::optional<double> cpu_limit;  ///< The control group's limit of CPU time, in CPUs.

  bool operator==(const CpuLocality&) const = default;
};

/// Functions that return this return nullopt if there is no device.
struct DeviceLocality {
  std::string pci_bus_id;
  CpuSet cpus;  ///< The CPUs close to it; empty if they are not known.

  bool operator==(const DeviceLocality&) const = default;
};

/// If something cannot be read, the default is one node, one package, no caches, and one core per CPU.
CpuLocality read_cpu_locality(const std::filesystem::path& sysroot = "/");

/// Returns nullopt if no PCI device has this id ("0000:c1:00.0").
std::optional<DeviceLocality> read_device_locality(const std::string& pci_bus_id,
                                                   const std::filesystem::path& sysroot = "/");

/// Returns `locality` with fewer allowed CPUs.
/// Errors  kInvalidArgument: the machine has, or allows, none of `allowed`.
CpuLocality restrict(CpuLocality locality, const CpuSet& allowed);

/// Drops caches that only one core uses, that have no allowed CPU, or that are listed twice.
void keep_shared_and_allowed(CpuLocality& locality);

}  // namespace yoke::device

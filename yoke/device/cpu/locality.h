// yoke/device/cpu/locality.h -- which CPUs lie together, and which lie beside a device: what `yoke run` binds ranks by.
//
// Read from the few files of sysfs that tell it, as a launcher has no time for hwloc; topology/locality.h has the same
// from hwloc's file of a machine that is not here.
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
  CpuSet cpus;  ///< All of them, allowed or not; those of the packages too.

  bool operator==(const NodeLocality&) const = default;
};

struct CpuLocality {
  CpuSet allowed;  ///< What this process may use: affinity mask and cpuset.
  std::vector<NodeLocality> nodes;
  std::vector<CpuSet> packages;
  std::vector<CpuSet> caches;       ///< Last-level ones that several cores share, if they have an allowed CPU.
  std::vector<CpuSet> cores;        ///< The hardware threads of each; those with an allowed one.
  CpuSet memory_nodes;              ///< Of `nodes`, those with memory that this process may use.
  std::optional<double> cpu_limit;  ///< The control group gives time of so many CPUs, on whichever they are.

  bool operator==(const CpuLocality&) const = default;
};

/// nullopt stands for this wherever there is no device.
struct DeviceLocality {
  std::string pci_bus_id;
  CpuSet cpus;  ///< Beside it; empty: not known.

  bool operator==(const DeviceLocality&) const = default;
};

/// What cannot be read is taken as one node, one package, no caches, one core for each CPU.
CpuLocality read_cpu_locality(const std::filesystem::path& sysroot = "/");

/// nullopt: there is no PCI device of this id ("0000:c1:00.0").
std::optional<DeviceLocality> read_device_locality(const std::string& pci_bus_id,
                                                   const std::filesystem::path& sysroot = "/");

/// The same with fewer allowed CPUs.
/// Errors  kInvalidArgument: none of `allowed` is there.
CpuLocality restrict(CpuLocality locality, const CpuSet& allowed);

/// Drops what is not of several cores, has no allowed CPU, or repeats.
void keep_shared_and_allowed(CpuLocality& locality);

}  // namespace yoke::device

// yoke/device/cpu/locality.h -- which CPUs are close to each other or to a device. `yoke run` binds ranks accordingly.
//
// These functions read a few files of sysfs, because loading hwloc would slow a launcher down. topology/locality.h
// computes the same data from a file that hwloc wrote on a different machine.
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
  CpuSet cpus;  ///< All CPUs of the node, including those that this process may not use.

  bool operator==(const NodeLocality&) const = default;
};

struct CpuLocality {
  CpuSet allowed;  ///< CPUs that this process may use according to its affinity mask and cpuset.
  std::vector<NodeLocality> nodes;
  std::vector<CpuSet> packages;     ///< For each package, all its CPUs, allowed or not.
  std::vector<CpuSet> caches;       ///< Last-level caches that several cores share and that have an allowed CPU.
  std::vector<CpuSet> cores;        ///< For each core with an allowed CPU, all its hardware threads.
  CpuSet memory_nodes;              ///< Numbers of the `nodes` whose memory this process may use.
  std::optional<double> cpu_limit;  ///< The limit of CPU time in the control group, in CPUs.

  bool operator==(const CpuLocality&) const = default;
};

/// A PCI device and the CPUs near it.
struct DeviceLocality {
  std::string pci_bus_id;
  CpuSet cpus;  ///< The CPUs close to the device; empty if they are not known.

  bool operator==(const DeviceLocality&) const = default;
};

/// Reads this machine. Data that cannot be read gets a default: one node, one package, no caches, or one core per CPU.
CpuLocality read_cpu_locality(const std::filesystem::path& sysroot = "/");

/// Returns nullopt if no PCI device has this id ("0000:c1:00.0").
std::optional<DeviceLocality> read_device_locality(const std::string& pci_bus_id,
                                                   const std::filesystem::path& sysroot = "/");

/// Returns `locality` with the CPUs outside of `allowed` removed from its allowed CPUs.
/// Errors  kInvalidArgument if this process may use none of the CPUs in `allowed`.
CpuLocality restrict(CpuLocality locality, const CpuSet& allowed);

/// Removes caches that only one core uses, that have no allowed CPU, or that are listed twice.
void keep_shared_and_allowed(CpuLocality& locality);

}  // namespace yoke::device

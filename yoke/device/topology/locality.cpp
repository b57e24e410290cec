#include "yoke/device/topology/locality.h"

namespace yoke::device {
namespace {

/// Parses a list made by hwloc, which is always well formed.
CpuSet to_set(std::string_view list) { return CpuSet::parse_list(list).value_or(CpuSet()); }

}  // namespace

CpuLocality cpu_locality(const Topology& topology) {
  CpuLocality result;
  result.allowed = to_set(topology.allowed_cpus.empty() ? topology.cpus : topology.allowed_cpus);
  CpuSet seen;
  for (const auto& node : topology.numa_nodes) {
    // For a node without its own CPUs (HBM, CXL, a GPU's memory), hwloc returns nearby CPUs, which another node has
    // too.
    auto cpus = to_set(node.cpus) - seen;
    if (cpus.empty()) continue;
    seen |= cpus;
    result.nodes.push_back({node.number, std::move(cpus)});
    if (node.memory_bytes > 0) result.memory_nodes.add(node.number);
  }
  for (const auto& package : topology.packages) result.packages.push_back(to_set(package.cpus));
  for (const auto& cache : topology.last_level_caches) result.caches.push_back(to_set(cache));
  for (const auto& core : topology.cores) result.cores.push_back(to_set(core));
  keep_shared_and_allowed(result);
  return result;
}

std::vector<DeviceLocality> gpu_localities(const Topology& topology) {
  std::vector<DeviceLocality> result;
  for (const auto& device : topology.devices) {
    if (device.kind == PciDevice::Kind::kGpu) result.push_back({device.pci_bus_id, to_set(device.cpus)});
  }
  return result;
}

}  // namespace yoke::device

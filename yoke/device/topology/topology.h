// yoke/device/topology/topology.h -- the positions of a machine's CPUs, memories and PCI devices relative to each
// other.
//
// Uses hwloc, which is opened by name at run time. Only these functions need it and wait for it to load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace yoke::device {

struct Package {
  int64_t number = 0;
  std::string name;  ///< "AMD EPYC 7A53 64-Core Processor"; empty when unknown.
  std::string cpus;  ///< In the kernel's form, "0-127".

  bool operator==(const Package&) const = default;
};

struct NumaNode {
  int64_t number = 0;
  std::optional<int64_t> package;  ///< The number of the node's package; nullopt if the node belongs to several.
  int64_t memory_bytes = 0;
  std::string cpus;

  bool operator==(const NumaNode&) const = default;
};

/// All caches of one level, for data or unified.
struct Cache {
  int64_t level = 0;
  int64_t count = 0;
  int64_t size_bytes = 0;  ///< Size of the first of these caches.

  bool operator==(const Cache&) const = default;
};

/// A GPU or a network card.
struct PciDevice {
  enum class Kind { kGpu, kNic };
  Kind kind = Kind::kGpu;
  std::string pci_bus_id;
  int64_t vendor_id = 0, device_id = 0;
  std::string name;                   ///< "NVIDIA 0x20b2"
  std::vector<std::string> os_names;  ///< The device's names in Linux: "mlx5_0", "ib0".
  std::optional<int64_t> numa_node;   ///< nullopt if the device is close to several nodes, or this is not known.
  std::string cpus;                   ///< The CPUs close to the device.
  /// PCI bridges on the path to the device, the host bridge first.
  std::vector<std::string> bridges;

  bool operator==(const PciDevice&) const = default;
};

struct Topology {
  std::vector<Package> packages;
  std::vector<NumaNode> numa_nodes;            ///< Sorted by number.
  std::vector<Cache> caches;                   ///< The largest level first.
  std::vector<std::string> last_level_caches;  ///< The CPUs of each last-level cache.
  std::vector<std::string> cores;              ///< The hardware threads of each core.
  int64_t num_cores = 0, num_cpus = 0;
  std::string cpus;
  std::string allowed_cpus;        ///< CPUs that this process may use; empty for a file of a different machine.
  std::vector<PciDevice> devices;  ///< Sorted by bus id.

  bool operator==(const Topology&) const = default;
};

struct TopologyOptions {
  std::filesystem::path xml_file;       ///< A file that `lstopo FILE.xml` wrote; empty for this machine.
  std::filesystem::path sysroot = "/";  ///< The folder that holds proc and sys.
};

/// Errors  kNotFound if hwloc or the file does not exist; kDataLoss if hwloc did not write the file.
/// REQUIRES: the caller has one thread, because hwloc takes options from the environment.
Topology load_topology(const TopologyOptions& options = {});

}  // namespace yoke::device

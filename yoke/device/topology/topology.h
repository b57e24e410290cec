// yoke/device/topology/topology.h -- how the processors, memories and PCI devices of a machine lie to each other.
//
// By hwloc, which is opened by name: what else yoke does neither needs it nor waits for it.
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
  std::string cpus;  ///< "0-127", as the kernel writes lists.

  bool operator==(const Package&) const = default;
};

struct NumaNode {
  int64_t number = 0;
  std::optional<int64_t> package;  ///< Its number; nullopt: of several packages.
  int64_t memory_bytes = 0;
  std::string cpus;

  bool operator==(const NumaNode&) const = default;
};

/// All caches of one level, data or unified.
struct Cache {
  int64_t level = 0;
  int64_t count = 0;
  int64_t size_bytes = 0;  ///< Of the first.

  bool operator==(const Cache&) const = default;
};

/// A GPU or a network card.
struct PciDevice {
  enum class Kind { kGpu, kNic };
  Kind kind = Kind::kGpu;
  std::string pci_bus_id;
  int64_t vendor_id = 0, device_id = 0;
  std::string name;                   ///< "NVIDIA 0x20b2"
  std::vector<std::string> os_names;  ///< What Linux calls it: "mlx5_0", "ib0".
  std::optional<int64_t> numa_node;   ///< nullopt: beside several, or not known.
  std::string cpus;                   ///< The processors beside it.
  /// PCI bridges on the way to it, the host bridge first.
  std::vector<std::string> bridges;

  bool operator==(const PciDevice&) const = default;
};

struct Topology {
  std::vector<Package> packages;
  std::vector<NumaNode> numa_nodes;            ///< In order of their numbers.
  std::vector<Cache> caches;                   ///< The largest level first.
  std::vector<std::string> last_level_caches;  ///< The CPUs of each.
  std::vector<std::string> cores;              ///< The hardware threads of each.
  int64_t num_cores = 0, num_cpus = 0;
  std::string cpus;
  std::string allowed_cpus;        ///< What this process may use of them; empty for the file of another machine.
  std::vector<PciDevice> devices;  ///< In order of their bus ids.

  bool operator==(const Topology&) const = default;
};

struct TopologyOptions {
  std::filesystem::path xml_file;       ///< Written by `lstopo FILE.xml`, maybe elsewhere; empty: the machine itself.
  std::filesystem::path sysroot = "/";  ///< Below it are proc and sys.
};

/// Errors  kNotFound: no hwloc, no such file; kDataLoss: it is not hwloc's.
/// REQUIRES: the caller has one thread, for hwloc takes options from the environment.
Topology load_topology(const TopologyOptions& options = {});

}  // namespace yoke::device

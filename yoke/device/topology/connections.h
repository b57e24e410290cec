// yoke/device/topology/connections.h -- computes the matrix of `yoke topo`: how each pair of devices is connected, as
// `nvidia-smi topo -m` defines it. Pure functions of a topology and of the links that drivers report between their
// GPUs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/device/device.h"
#include "yoke/device/topology/topology.h"

namespace yoke::device {

struct Connection {
  enum class Kind {
    kSelf,
    kNvlink,  ///< `count` NVLinks, direct or through switches.
    kXgmi,    ///< `count` links of Infinity Fabric.
    kHops,    ///< Infinity Fabric through other GPUs: a path of `count` links.
    kPix,     ///< Through at most one PCIe switch.
    kPxb,     ///< Through several PCIe switches, but not the host bridge.
    kPhb,     ///< Through one host bridge.
    kNode,    ///< Between host bridges of one NUMA node.
    kSys,     ///< Between NUMA nodes.
    kUnknown,
  };
  Kind kind = Kind::kUnknown;
  int64_t count = 0;

  bool operator==(const Connection&) const = default;
};

std::string_view name(Connection::Kind kind);     ///< "X", "NV", "XGMI", "HOP", "PIX"...
std::string label(const Connection& connection);  ///< "X", "NV12", "XGMI4", "HOP2", "PIX"...

/// One row and one column of the matrix.
struct Endpoint {
  enum class Kind {
    kDevice,
    kSilent,  ///< A GPU on the PCI bus without a driver that reports it.
    kNic,
  };
  Kind kind = Kind::kDevice;
  std::string label;  ///< "GPU0" (its number as in `yoke devices`), "PCI0", "NIC0"
  std::string name;   ///< "AMD Instinct MI250X", "mlx5_0"
  std::string pci_bus_id;
  std::optional<int64_t> numa_node;
  std::string cpus;
  std::vector<std::string> bridges;  ///< See PciDevice::bridges; empty if the topology does not have the device.
  std::vector<Link> links;
};

struct LinkMatrix {
  std::vector<Endpoint> endpoints;
  std::vector<std::vector<Connection>> connections;  ///< For each pair of `endpoints`, in their order.
};

/// Builds the matrix: the GPUs among `devices` in their order, then other GPUs, then network cards.
LinkMatrix link_matrix(const Topology& topology, const std::vector<Device>& devices);

/// Returns the GPUs of a topology as devices without readings, for a machine whose drivers cannot be asked.
std::vector<Device> devices_of(const Topology& topology);

}  // namespace yoke::device

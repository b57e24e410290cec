// yoke/device/topology/connections.h -- what lies between two devices: the matrix of `yoke topo`, as `nvidia-smi topo
// -m` defines it. Pure functions of a topology and of what the drivers say about links between their GPUs.
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
    kNvlink,  ///< `count` NVLinks, directly or by switches.
    kXgmi,    ///< `count` links of Infinity Fabric.
    kHops,    ///< Infinity Fabric through other GPUs: `count` links one after the other.
    kPix,     ///< At most one PCIe switch.
    kPxb,     ///< Several PCIe switches, and not the host bridge.
    kPhb,     ///< The same host bridge.
    kNode,    ///< Several host bridges of one NUMA node.
    kSys,     ///< Several NUMA nodes.
    kUnknown,
  };
  Kind kind = Kind::kUnknown;
  int64_t count = 0;

  bool operator==(const Connection&) const = default;
};

std::string_view name(Connection::Kind kind);     ///< "X", "NV", "XGMI", "HOP", "PIX"...
std::string label(const Connection& connection);  ///< "X", "NV12", "XGMI4", "HOP2", "PIX"...

/// A row and column of the matrix.
struct Endpoint {
  enum class Kind {
    kDevice,
    kSilent,  ///< A GPU on the PCI bus that no driver told of.
    kNic,
  };
  Kind kind = Kind::kDevice;
  std::string label;  ///< "GPU0" (its number as in `yoke devices`), "PCI0", "NIC0"
  std::string name;   ///< "AMD Instinct MI250X", "mlx5_0"
  std::string pci_bus_id;
  std::optional<int64_t> numa_node;
  std::string cpus;
  std::vector<std::string> bridges;  ///< As PciDevice::bridges; empty: the topology does not have it.
  std::vector<Link> links;
};

struct LinkMatrix {
  std::vector<Endpoint> endpoints;
  std::vector<std::vector<Connection>> connections;  ///< Of each with each, in this order.
};

/// GPUs among `devices` in their order, then other GPUs, then network cards.
LinkMatrix link_matrix(const Topology& topology, const std::vector<Device>& devices);

/// The GPUs of a topology alone, as devices without readings: of a machine whose drivers cannot be asked.
std::vector<Device> devices_of(const Topology& topology);

}  // namespace yoke::device

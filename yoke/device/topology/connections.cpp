#include "yoke/device/topology/connections.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

namespace yoke::device {
namespace {

using Kind = Connection::Kind;

int64_t count_links(const Endpoint& from, std::string_view kind, std::string_view to) {
  return std::ranges::count_if(from.links, [&](const Link& link) {
    return link.is_active && link.kind == kind && link.remote_pci_bus_id == to;
  });
}

/// Counts NVLinks between each pair of endpoints, direct or through switches.
class Nvlinks {
 public:
  explicit Nvlinks(const std::vector<Endpoint>& endpoints) : endpoints_(endpoints) {
    const auto is_endpoint = [&](const std::string& id) {
      return std::ranges::any_of(endpoints, [&](const Endpoint& other) { return other.pci_bus_id == id; });
    };
    for (const auto& endpoint : endpoints) {
      auto& switches = switches_.emplace_back();
      for (const auto& link : endpoint.links) {
        const auto& remote = link.remote_pci_bus_id;
        if (link.is_active && link.kind == "nvlink" && !remote.empty() && !is_endpoint(remote))
          switches.push_back(remote);
      }
    }
  }

  std::optional<Connection> between(size_t a, size_t b) const {
    const auto direct = std::max(count_links(endpoints_[a], "nvlink", endpoints_[b].pci_bus_id),
                                 count_links(endpoints_[b], "nvlink", endpoints_[a].pci_bus_id));
    if (direct > 0) return Connection{Kind::kNvlink, direct};
    const auto& of_a = switches_[a];
    const auto& of_b = switches_[b];
    const bool is_shared = std::find_first_of(of_a.begin(), of_a.end(), of_b.begin(), of_b.end()) != of_a.end();
    if (!is_shared) return std::nullopt;
    return Connection{Kind::kNvlink, static_cast<int64_t>(std::min(of_a.size(), of_b.size()))};
  }

 private:
  const std::vector<Endpoint>& endpoints_;
  std::vector<std::vector<std::string>> switches_;  ///< For each endpoint, the remote ends of its links, except GPUs.
};

/// Counts the direct Infinity Fabric links between each pair of endpoints. For a pair without a direct link, counts the
/// hops; 0 if there is no path.
class Fabric {
 public:
  explicit Fabric(const std::vector<Endpoint>& endpoints) : endpoints_(endpoints) {}

  std::optional<Connection> between(size_t a, size_t b) const {
    if (const auto count = num_links(a, b); count > 0) return Connection{Kind::kXgmi, count};
    const auto hops = num_hops(a, b);
    return hops > 0 ? std::optional(Connection{Kind::kHops, hops}) : std::nullopt;
  }

 private:
  int64_t num_links(size_t a, size_t b) const {
    return std::max(count_links(endpoints_[a], "xgmi", endpoints_[b].pci_bus_id),
                    count_links(endpoints_[b], "xgmi", endpoints_[a].pci_bus_id));
  }

  int64_t num_hops(size_t from, size_t to) const {
    std::vector<int64_t> hops(endpoints_.size(), -1);
    hops[from] = 0;
    for (std::deque<size_t> queue = {from}; !queue.empty(); queue.pop_front()) {
      const auto current = queue.front();
      if (current == to) return hops[to];
      if (endpoints_[current].links.empty()) continue;
      for (size_t next = 0; next < endpoints_.size(); ++next) {
        if (hops[next] >= 0 || num_links(current, next) == 0) continue;
        hops[next] = hops[current] + 1;
        queue.push_back(next);
      }
    }
    return 0;
  }

  const std::vector<Endpoint>& endpoints_;
};

Kind pci_path(const Endpoint& a, const Endpoint& b) {
  if (a.pci_bus_id.empty() || b.pci_bus_id.empty()) return Kind::kUnknown;  // a device that does not answer
  if (a.pci_bus_id == b.pci_bus_id) return Kind::kPix;                      // partitions of one card
  const bool both_nodes = a.numa_node && b.numa_node;
  if (both_nodes && a.numa_node != b.numa_node) return Kind::kSys;
  if (a.bridges.empty() || b.bridges.empty()) return Kind::kUnknown;
  const auto ends = std::mismatch(a.bridges.begin(), a.bridges.end(), b.bridges.begin(), b.bridges.end());
  const auto num_common = ends.first - a.bridges.begin();
  if (num_common == 0) return both_nodes ? Kind::kNode : Kind::kUnknown;
  if (num_common == 1) return Kind::kPhb;
  // The kernel lists a PCIe switch as several bridges: one for the upstream port, and one for each downstream port.
  const auto num_below = std::max(a.bridges.end() - ends.first, b.bridges.end() - ends.second);
  return num_below <= 1 ? Kind::kPix : Kind::kPxb;
}

Endpoint endpoint_of(const PciDevice& device) {
  Endpoint endpoint{.kind = device.kind == PciDevice::Kind::kNic ? Endpoint::Kind::kNic : Endpoint::Kind::kSilent,
                    .name = device.os_names.empty() ? device.name : device.os_names.front(),
                    .pci_bus_id = device.pci_bus_id,
                    .numa_node = device.numa_node,
                    .cpus = device.cpus,
                    .bridges = device.bridges};
  // InfiniBand devices have two names ("ib0", "mlx5_0"). This picks the one that NCCL_IB_HCA and nvidia-smi use.
  for (const auto& name : device.os_names) {
    if (name.starts_with("mlx") || name.starts_with("bnxt_re") || name.starts_with("hfi")) endpoint.name = name;
  }
  return endpoint;
}

}  // namespace

std::string_view name(Connection::Kind kind) {
  switch (kind) {
    case Kind::kSelf: return "X";
    case Kind::kNvlink: return "NV";
    case Kind::kXgmi: return "XGMI";
    case Kind::kHops: return "HOP";
    case Kind::kPix: return "PIX";
    case Kind::kPxb: return "PXB";
    case Kind::kPhb: return "PHB";
    case Kind::kNode: return "NODE";
    case Kind::kSys: return "SYS";
    case Kind::kUnknown: return "?";
  }
  return "?";
}

std::string label(const Connection& connection) {
  const bool has_count = connection.count > 0;
  return has_count ? fmt::format("{}{}", name(connection.kind), connection.count) : std::string(name(connection.kind));
}

LinkMatrix link_matrix(const Topology& topology, const std::vector<Device>& devices) {
  LinkMatrix matrix;
  auto& endpoints = matrix.endpoints;
  for (const auto& device : devices) {
    if (device.vendor == Vendor::kCpu) continue;
    Endpoint endpoint{.label = fmt::format("GPU{}", device.index),
                      .name = device.facts.name,
                      .pci_bus_id = device.facts.pci_bus_id,
                      .numa_node = device.facts.numa_node,
                      .cpus = device.facts.cpu_affinity,
                      .links = device.links.value_or(std::vector<Link>())};
    for (const auto& known : topology.devices) {
      if (known.pci_bus_id != endpoint.pci_bus_id) continue;
      endpoint.bridges = known.bridges;
      if (known.numa_node) endpoint.numa_node = known.numa_node;
      endpoint.cpus = known.cpus;
    }
    endpoints.push_back(std::move(endpoint));
  }
  const auto num_devices = endpoints.size();
  for (const auto kind : {PciDevice::Kind::kGpu, PciDevice::Kind::kNic}) {
    int64_t number = 0;
    for (const auto& device : topology.devices) {
      const bool is_listed =
          std::any_of(endpoints.begin(), endpoints.begin() + static_cast<std::ptrdiff_t>(num_devices),
                      [&](const Endpoint& other) { return other.pci_bus_id == device.pci_bus_id; });
      if (device.kind != kind || is_listed) continue;
      auto& endpoint = endpoints.emplace_back(endpoint_of(device));
      endpoint.label = fmt::format("{}{}", kind == PciDevice::Kind::kNic ? "NIC" : "PCI", number++);
    }
  }

  const Nvlinks nvlinks(endpoints);
  const Fabric fabric(endpoints);
  for (size_t a = 0; a < endpoints.size(); ++a) {
    auto& row = matrix.connections.emplace_back();
    for (size_t b = 0; b < endpoints.size(); ++b) {
      auto connection = a == b ? Connection{Kind::kSelf} : nvlinks.between(a, b);
      if (!connection) connection = fabric.between(a, b);
      row.push_back(connection.value_or(Connection{pci_path(endpoints[a], endpoints[b])}));
    }
  }
  return matrix;
}

std::vector<Device> devices_of(const Topology& topology) {
  std::vector<Device> devices;
  for (const auto& known : topology.devices) {
    if (known.kind != PciDevice::Kind::kGpu || known.vendor_id == 0x8086) continue;
    auto& device = devices.emplace_back();
    device.index = static_cast<int64_t>(devices.size()) - 1;
    device.vendor = known.vendor_id == 0x1002 ? Vendor::kAmd : Vendor::kNvidia;
    device.facts.name = known.name;
    device.facts.pci_bus_id = known.pci_bus_id;
    device.facts.numa_node = known.numa_node;
    device.facts.cpu_affinity = known.cpus;
  }
  return devices;
}

}  // namespace yoke::device

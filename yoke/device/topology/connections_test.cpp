#include "yoke/device/topology/connections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::device {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// A GPU with its data from the topology and from its driver.
struct Gpu {
  std::string id;
  std::vector<std::string> bridges;
  std::optional<int64_t> numa_node;
  std::vector<std::pair<std::string, std::string>> links = {};  ///< kind, remote
};

LinkMatrix matrix_of(const std::vector<Gpu>& gpus) {
  Topology topology;
  std::vector<Device> devices;
  for (const auto& gpu : gpus) {
    topology.devices.push_back({.pci_bus_id = gpu.id, .numa_node = gpu.numa_node, .bridges = gpu.bridges});
    auto& device = devices.emplace_back();
    device.index = static_cast<int64_t>(devices.size()) - 1;
    device.vendor = Vendor::kNvidia;
    device.facts.pci_bus_id = gpu.id;
    device.links.emplace();
    for (const auto& [kind, remote] : gpu.links) {
      device.links->push_back({.number = static_cast<int64_t>(device.links->size()),
                               .kind = kind,
                               .is_active = true,
                               .remote_pci_bus_id = remote});
    }
  }
  return link_matrix(topology, devices);
}

std::vector<std::string> row(const LinkMatrix& matrix, size_t number) {
  std::vector<std::string> labels;
  for (const auto& connection : matrix.connections.at(number)) labels.push_back(label(connection));
  return labels;
}

// A PCIe switch has one upstream port and several downstream ports; the kernel lists each as a bridge.
TEST(Connections, PcieAsNvidiaSmiDefinesIt) {
  const auto matrix = matrix_of({
      {"a", {"host 0", "port", "up", "down0"}, 0},
      {"b", {"host 0", "port", "up", "down1"}, 0},                  // the same switch
      {"c", {"host 0", "port", "up", "down2", "up2", "down3"}, 0},  // a second switch below the first
      {"d", {"host 0", "port2"}, 0},                                // a different slot
      {"e", {"host 1", "port"}, 0},                                 // a different host bridge of the same node
      {"f", {"host 2", "port"}, 1},                                 // a different NUMA node
  });
  EXPECT_THAT(row(matrix, 0), ElementsAre("X", "PIX", "PXB", "PHB", "NODE", "SYS"));
  EXPECT_THAT(row(matrix, 2), ElementsAre("PXB", "PXB", "X", "PHB", "NODE", "SYS"));
  EXPECT_THAT(row(matrix, 5), ElementsAre("SYS", "SYS", "SYS", "SYS", "SYS", "X"));
}

TEST(Connections, FunctionsOfOneCardAreBehindOneBridge) {
  const auto matrix = matrix_of({{"1:00.0", {"host 0", "port"}, 0}, {"1:00.1", {"host 0", "port"}, 0}});
  EXPECT_THAT(row(matrix, 0), ElementsAre("X", "PIX"));
}

TEST(Connections, WhatIsNotKnownIsNotGuessed) {
  const auto matrix = matrix_of({{"a", {"host 0"}, std::nullopt}, {"b", {"host 1"}, 0}, {"c", {}, 0}, {"d", {}, 1}});
  EXPECT_THAT(row(matrix, 0), ElementsAre("X", "?", "?", "?"));
  EXPECT_THAT(row(matrix, 2), ElementsAre("?", "?", "X", "SYS"));  // follows from the NUMA nodes alone
  const auto silent = matrix_of({{"", {}, std::nullopt}, {"a", {"host 0"}, 0}, {"", {}, std::nullopt}});
  EXPECT_THAT(row(silent, 0), ElementsAre("X", "?", "?")) << "GPUs that do not answer have no bus id";
}

TEST(Connections, NvlinksAreCounted) {
  const auto matrix = matrix_of({{"a", {"host 0"}, 0, {{"nvlink", "b"}, {"nvlink", "b"}, {"nvlink", "c"}}},
                                 {"b", {"host 1"}, 1, {{"nvlink", "a"}, {"nvlink", "a"}}},
                                 {"c", {"host 1"}, 1, {}}});  // device c did not answer, but device a did
  EXPECT_THAT(row(matrix, 0), ElementsAre("X", "NV2", "NV1"));
  EXPECT_THAT(row(matrix, 1), ElementsAre("NV2", "X", "PHB"));
  EXPECT_THAT(row(matrix, 2), ElementsAre("NV1", "PHB", "X"));
}

TEST(Connections, NvswitchesConnectAll) {
  const std::vector<std::pair<std::string, std::string>> twelve(12, {"nvlink", "switch"});
  const auto matrix = matrix_of({{"a", {"host 0"}, 0, twelve},
                                 {"b", {"host 1"}, 1, {twelve.begin(), twelve.begin() + 11}},  // one link is down
                                 {"c", {"host 1"}, 1, {{"nvlink", "another switch"}}},
                                 {"d", {"host 1"}, 1, {{"nvlink", ""}}},
                                 {"e", {"host 1"}, 1, {{"nvlink", ""}}}});
  EXPECT_THAT(row(matrix, 0), ElementsAre("X", "NV11", "SYS", "SYS", "SYS"));
  EXPECT_THAT(row(matrix, 3), ElementsAre("SYS", "PHB", "PHB", "X", "PHB"));  // the unknown remote ends may differ
}

TEST(Connections, InactiveLinksAreNone) {
  Topology topology;
  std::vector<Device> devices(2);
  devices[0].vendor = devices[1].vendor = Vendor::kNvidia;
  devices[0].facts = {.pci_bus_id = "a", .numa_node = 0};
  devices[1].facts = {.pci_bus_id = "b", .numa_node = 1};
  devices[0].links = {{.kind = "nvlink", .is_active = false, .remote_pci_bus_id = "b"}};
  EXPECT_THAT(row(link_matrix(topology, devices), 0), ElementsAre("X", "SYS"));
}

TEST(Connections, InfinityFabricThroughOthersIsCountedInHops) {
  const auto matrix = matrix_of({{"a", {"host 0"}, 0, {{"xgmi", "b"}, {"xgmi", "b"}}},
                                 {"b", {"host 1"}, 0, {{"xgmi", "a"}, {"xgmi", "a"}, {"xgmi", "c"}}},
                                 {"c", {"host 2"}, 1, {{"xgmi", "b"}, {"xgmi", "d"}}},
                                 {"d", {"host 3"}, 1, {{"xgmi", "c"}}},
                                 {"e", {"host 3"}, 1}});
  EXPECT_THAT(row(matrix, 0), ElementsAre("X", "XGMI2", "HOP2", "HOP3", "SYS"));
  EXPECT_THAT(row(matrix, 3), ElementsAre("HOP3", "HOP2", "XGMI1", "X", "PHB"));
}

TEST(Connections, EndpointsAreDevicesThenSilentGpusThenNics) {
  Topology topology;
  topology.devices = {
      {.kind = PciDevice::Kind::kNic, .pci_bus_id = "1", .name = "15b3:101b", .os_names = {"ib0", "mlx5_0"}},
      {.kind = PciDevice::Kind::kGpu, .pci_bus_id = "2", .name = "NVIDIA 0x2684"},
      {.kind = PciDevice::Kind::kGpu, .pci_bus_id = "3", .name = "AMD 0x744c", .numa_node = 1, .cpus = "8-15"},
      {.kind = PciDevice::Kind::kNic, .pci_bus_id = "4", .name = "8086:1521"}};
  std::vector<Device> devices(2);
  devices[0].vendor = Vendor::kAmd;
  devices[0].facts = {.name = "AMD Radeon", .pci_bus_id = "3", .numa_node = 0, .cpu_affinity = "0-7"};
  devices[1].vendor = Vendor::kCpu;
  const auto matrix = link_matrix(topology, devices);
  std::vector<std::string> names;
  for (const auto& endpoint : matrix.endpoints) names.push_back(endpoint.label + " " + endpoint.name);
  EXPECT_THAT(names, ElementsAre("GPU0 AMD Radeon", "PCI0 NVIDIA 0x2684", "NIC0 mlx5_0", "NIC1 8086:1521"));
  EXPECT_EQ(matrix.endpoints[0].numa_node, 1);  // hwloc corrects known errors in the firmware of machines
  EXPECT_EQ(matrix.endpoints[0].cpus, "8-15");
  EXPECT_THAT(link_matrix({}, {}).endpoints, IsEmpty());
}

}  // namespace
}  // namespace yoke::device

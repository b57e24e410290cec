#include "yoke/view/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "yoke/base/text.h"

namespace yoke::view {
namespace {

using device::Device;
using device::LinkMatrix;
using device::PciDevice;
using device::Topology;
using device::Vendor;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int64_t kNodeGib = int64_t{1} << 30;

/// Two packages, each with one NUMA node, and a GPU and a network card behind a PCIe switch. NVLinks connect the GPUs.
Topology two_packages() {
  Topology topology{.packages = {{0, "Some CPU", "0-7"}, {1, "Some CPU", "8-15"}},
                    .numa_nodes = {{0, 0, 64 * kNodeGib, "0-7"}, {1, 1, 64 * kNodeGib, "8-15"}},
                    .caches = {{3, 2, 32 << 20}},
                    .num_cores = 16,
                    .num_cpus = 16,
                    .cpus = "0-15",
                    .allowed_cpus = "0-15"};
  for (const int64_t node : {0, 1}) {
    const auto name = std::to_string(node);
    topology.devices.push_back({.pci_bus_id = "0000:" + name + "1:00.0",
                                .numa_node = node,
                                .cpus = node == 0 ? "0-7" : "8-15",
                                .bridges = {"host " + name, "port " + name, "up " + name, "down0 " + name}});
    topology.devices.push_back({.kind = PciDevice::Kind::kNic,
                                .pci_bus_id = "0000:" + name + "2:00.0",
                                .os_names = {"ib" + name, "mlx5_" + name},
                                .numa_node = node,
                                .cpus = node == 0 ? "0-7" : "8-15",
                                .bridges = {"host " + name, "port " + name, "up " + name, "down1 " + name}});
  }
  return topology;
}

std::vector<Device> linked_gpus(const std::string& name = "NVIDIA A100") {
  std::vector<Device> devices(2);
  for (size_t i = 0; i < 2; ++i) {
    devices[i].index = static_cast<int64_t>(i);
    devices[i].vendor = Vendor::kNvidia;
    devices[i].facts = {.name = name, .pci_bus_id = "0000:" + std::to_string(i) + "1:00.0"};
    const auto remote = "0000:" + std::to_string(1 - i) + "1:00.0";
    devices[i].links = {{.number = 0, .kind = "nvlink", .is_active = true, .remote_pci_bus_id = remote},
                        {.number = 1, .kind = "nvlink", .is_active = true, .remote_pci_bus_id = remote}};
  }
  return devices;
}

TEST(Topology, Text) {
  const auto topology = two_packages();
  EXPECT_EQ(topology_text(topology, link_matrix(topology, linked_gpus()), 80),
            "Some CPU: 2 packages, 2 NUMA nodes, 16 cores, 16 CPUs, L3 2 x 32.0 MiB\n"
            "\n"
            "      GPU0  GPU1  NIC0  NIC1  NUMA  CPUs beside it\n"
            "GPU0  X     NV2   PIX   SYS   0     0-7\n"
            "GPU1  NV2   X     SYS   PIX   1     8-15\n"
            "NIC0  PIX   SYS   X     SYS   0     0-7\n"
            "NIC1  SYS   PIX   SYS   X     1     8-15\n"
            "\n"
            "  NV#    # NVLinks, directly or by NVSwitches\n"
            "  PIX    at most one PCIe switch\n"
            "  SYS    the links between NUMA nodes\n"
            "\n"
            "  GPU0   0000:01:00.0  NVIDIA A100\n"
            "  GPU1   0000:11:00.0  NVIDIA A100\n"
            "  NIC0   0000:02:00.0  mlx5_0\n"
            "  NIC1   0000:12:00.0  mlx5_1\n"
            "\n"
            "NUMA    memory  CPUs  beside it\n"
            "0     64.0 GiB  0-7   GPU0 NIC0\n"
            "1     64.0 GiB  8-15  GPU1 NIC1\n");
}

TEST(Topology, ANarrowTerminalGetsSeveralBlocks) {
  const auto topology = two_packages();
  const auto text = topology_text(topology, link_matrix(topology, linked_gpus()), 24);
  EXPECT_THAT(text, HasSubstr("\n      GPU0  GPU1  NIC0\nGPU0  X     NV2   PIX\n"));
  EXPECT_THAT(text, HasSubstr("\n      NIC1  NUMA\nGPU0  SYS   0\n"));
  EXPECT_THAT(text, HasSubstr("\n      CPUs beside it\nGPU0  0-7\n"));
}

TEST(Topology, AllowedCpusAreToldWhenTheyAreFewer) {
  auto topology = two_packages();
  EXPECT_THAT(topology_text(topology, {}, 80), Not(HasSubstr("This process")));
  topology.allowed_cpus = "0-3";
  EXPECT_THAT(topology_text(topology, {}, 80), HasSubstr("This process may use CPUs 0-3\n"));
}

TEST(Topology, NothingIsKnown) {
  EXPECT_THAT(topology_text({}, {}, 80), IsEmpty());
  EXPECT_EQ(topology_json({}, {}).at("cpus"), nullptr);
  EXPECT_THAT(topology_svg({}, {}), HasSubstr("</svg>"));
  // A recording has no topology, so only the links are known.
  const auto matrix = link_matrix({}, linked_gpus());
  EXPECT_THAT(topology_text({}, matrix, 80), HasSubstr("GPU0  X     NV2   -     -\n"));
  EXPECT_THAT(topology_svg({}, matrix), AllOf(HasSubstr(">GPU1<"), HasSubstr(">NV2<")));
}

TEST(Topology, Json) {
  const auto topology = two_packages();
  const auto json = topology_json(topology, link_matrix(topology, linked_gpus()));
  EXPECT_EQ(json.at("num_cpus"), 16);
  EXPECT_EQ(json.at("caches")[0], nlohmann::ordered_json({{"level", 3}, {"count", 2}, {"size_bytes", 32 << 20}}));
  EXPECT_EQ(json.at("numa_nodes")[1].at("beside"), nlohmann::ordered_json({"GPU1", "NIC1"}));
  EXPECT_EQ(json.at("endpoints")[2].at("kind"), "nic");
  EXPECT_EQ(json.at("endpoints")[2].at("name"), "mlx5_0");
  EXPECT_EQ(json.at("connections").size(), 6);
  EXPECT_EQ(json.at("connections")[0],
            nlohmann::ordered_json({{"from", "GPU0"}, {"to", "GPU1"}, {"kind", "NV"}, {"count", 2}}));
  EXPECT_EQ(json.at("connections")[1].at("count"), nullptr);
}

TEST(Topology, NamesFromElsewhereAreHarmless) {
  const auto topology = two_packages();
  const auto matrix = link_matrix(topology, linked_gpus("\x1b[2J<script>\"&\xff"));
  EXPECT_THAT(topology_text(topology, matrix, 80), AllOf(Not(HasSubstr("\x1b")), HasSubstr("?[2J<script>\"&?")));
  EXPECT_THAT(topology_svg(topology, matrix),
              AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("<script>")), HasSubstr("&lt;script")));
  EXPECT_NO_THROW(topology_json(topology, matrix).dump());
}

TEST(Topology, TheDrawingShowsEveryPart) {
  const auto topology = two_packages();
  const auto svg = topology_svg(topology, link_matrix(topology, linked_gpus()));
  for (const auto* part : {"Package 1", "NUMA node 0", "64.0 GiB", "CPUs 8-15", ">GPU1<", ">A100<", ">NIC0<",
                           ">mlx5_1<", "PCIe switch", ">NV2<", "prefers-color-scheme:dark"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  for (const auto* foreign : {"<script", "http://www.w3.org/1999/xlink", "url(", "@font-face", "NVSwitch"}) {
    EXPECT_THAT(svg, Not(HasSubstr(foreign)));
  }
}

TEST(Topology, SwitchesAreOneBarAndNotAnArcForEachPair) {
  auto devices = linked_gpus();
  for (auto& device : devices) {
    for (auto& link : *device.links) link.remote_pci_bus_id = "0000:c4:00.0";
  }
  const auto topology = two_packages();
  EXPECT_THAT(topology_svg(topology, link_matrix(topology, devices)), HasSubstr(">NVSwitch<"));
}

TEST(Topology, AMeshOfManyIsABarToo) {
  std::vector<Device> devices(6);
  for (size_t i = 0; i < devices.size(); ++i) {
    devices[i].index = static_cast<int64_t>(i);
    devices[i].vendor = Vendor::kAmd;
    devices[i].facts.pci_bus_id = std::to_string(i);
    devices[i].links.emplace();
    for (size_t other = 0; other < devices.size(); ++other) {
      if (other == i) continue;
      devices[i].links->push_back({.kind = "xgmi", .is_active = true, .remote_pci_bus_id = std::to_string(other)});
    }
  }
  EXPECT_THAT(topology_svg({}, link_matrix({}, devices)),
              AllOf(HasSubstr(">XGMI1 between each two<"), Not(HasSubstr(">XGMI1<"))));
  devices[0].links->pop_back();  // now one pair of GPUs has no link, so links are drawn one by one
  devices[5].links->erase(devices[5].links->begin());
  EXPECT_THAT(topology_svg({}, link_matrix({}, devices)),
              AllOf(Not(HasSubstr("between each two")), HasSubstr(">XGMI1<")));
}

}  // namespace
}  // namespace yoke::view

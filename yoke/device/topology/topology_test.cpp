#include "yoke/device/topology/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "fakes/sysfs/fixture_tree.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/device/topology/connections.h"

namespace yoke::device {
namespace {

using fakes::FixtureTree;

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

constexpr int64_t kNodeGib = int64_t{1} << 30;

Topology recorded(const std::string& name) { return load_topology({.xml_file = YOKE_TOPOLOGIES "/" + name + ".xml"}); }
Topology fake(const std::string& name) { return load_topology({.sysroot = YOKE_FAKE_SYSFS "/" + name}); }

std::map<std::string, int64_t> node_of(const Topology& topology, PciDevice::Kind kind) {
  std::map<std::string, int64_t> nodes;
  for (const auto& device : topology.devices) {
    if (device.kind == kind) nodes[device.pci_bus_id] = device.numa_node.value_or(-1);
  }
  return nodes;
}

TEST(Topology, LumiG) {
  const auto topology = recorded("lumi-g");
  EXPECT_EQ(topology.num_cores, 64);
  EXPECT_EQ(topology.num_cpus, 128);
  EXPECT_EQ(topology.cpus, "0-127");
  EXPECT_THAT(topology.packages, ElementsAre(Package{0, "AMD EPYC 7A53 64-Core Processor", "0-127"}));
  EXPECT_THAT(
      topology.numa_nodes,
      ElementsAre(NumaNode{0, 0, 128 * kNodeGib, "0-15,64-79"}, NumaNode{1, 0, 128 * kNodeGib, "16-31,80-95"},
                  NumaNode{2, 0, 128 * kNodeGib, "32-47,96-111"}, NumaNode{3, 0, 128 * kNodeGib, "48-63,112-127"}));
  EXPECT_THAT(topology.caches, ElementsAre(Cache{3, 8, 32 << 20}));
  EXPECT_THAT(
      node_of(topology, PciDevice::Kind::kGpu),
      ElementsAre(Pair("0000:c1:00.0", 3), Pair("0000:c6:00.0", 3), Pair("0000:c9:00.0", 1), Pair("0000:ce:00.0", 1),
                  Pair("0000:d1:00.0", 0), Pair("0000:d6:00.0", 0), Pair("0000:d9:00.0", 2), Pair("0000:de:00.0", 2)));
  EXPECT_THAT(node_of(topology, PciDevice::Kind::kNic), ElementsAre(Pair("0000:c5:00.0", 3), Pair("0000:cd:00.0", 1),
                                                                    Pair("0000:d5:00.0", 0), Pair("0000:dd:00.0", 2)));
  const auto& gpu = topology.devices.at(2);
  EXPECT_EQ(gpu.pci_bus_id, "0000:c6:00.0");
  EXPECT_EQ(gpu.cpus, "56-63,120-127");
  EXPECT_THAT(gpu.bridges, ElementsAre("host 0000:c4", "0000:c4:07.1"));
  EXPECT_THAT(topology.devices.at(1).os_names, ElementsAre("hsn0"));
}

TEST(Topology, DgxA100) {
  const auto topology = recorded("dgx-a100");
  EXPECT_THAT(topology.packages, SizeIs(2));
  EXPECT_THAT(topology.numa_nodes, SizeIs(8));
  EXPECT_EQ(topology.numa_nodes[5].package, 1);
  EXPECT_THAT(
      node_of(topology, PciDevice::Kind::kGpu),
      ElementsAre(Pair("0000:07:00.0", 3), Pair("0000:0f:00.0", 3), Pair("0000:47:00.0", 1), Pair("0000:4e:00.0", 1),
                  Pair("0000:87:00.0", 7), Pair("0000:90:00.0", 7), Pair("0000:b7:00.0", 5), Pair("0000:bd:00.0", 5)));
  EXPECT_THAT(topology.devices.front().name, HasSubstr("NVIDIA"));
}

TEST(Topology, AFileAndTheMachineItIsOfSayTheSame) {
  for (const auto* name : {"lumi-g", "dgx-a100", "workstation"}) {
    auto from_file = recorded(name), from_machine = fake(name);
    from_file.caches.clear();  // the fake machine's sysfs files contain only the last-level caches
    from_machine.caches.clear();
    EXPECT_EQ(from_machine.allowed_cpus, from_machine.cpus) << name;
    from_machine.allowed_cpus.clear();
    EXPECT_EQ(from_file, from_machine) << name;
  }
}

TEST(Topology, AMachineWithOneNodeHasAllBesideIt) {
  const auto topology = fake("workstation");
  EXPECT_THAT(node_of(topology, PciDevice::Kind::kGpu),
              ElementsAre(Pair("0000:03:00.0", 0), Pair("0000:0a:00.0", 0), Pair("0000:12:00.0", 0)));
  EXPECT_THAT(topology.caches, ElementsAre(Cache{3, 2, 32 << 20}, Cache{2, 16, 512 << 10}, Cache{1, 16, 32 << 10}));
}

TEST(Topology, AffinityIsWhatThisProcessMayUse) {
  const FixtureTree tree(YOKE_FAKE_SYSFS "/workstation", {"sys", "proc"});
  tree.write("proc/self/status", "Cpus_allowed_list:\t0-3,16-19\n");
  const auto topology = load_topology({.sysroot = tree.path()});
  EXPECT_EQ(topology.cpus, "0-31");
  EXPECT_EQ(topology.allowed_cpus, "0-3,16-19");
}

TEST(Topology, VirtualFunctionsAreNotListed) {
  const FixtureTree tree(YOKE_FAKE_SYSFS "/workstation", {"sys", "proc"});
  tree.write("sys/bus/pci/devices/0000:08:00.0/physfn/vendor", "0x8086\n");
  EXPECT_THAT(node_of(load_topology({.sysroot = tree.path()}), PciDevice::Kind::kNic), IsEmpty());
}

TEST(Topology, ThisMachine) {
  const auto topology = load_topology();
  EXPECT_GE(topology.num_cpus, 1);
  EXPECT_THAT(topology.numa_nodes, testing::Not(IsEmpty()));
  EXPECT_THAT(topology.allowed_cpus, testing::Not(IsEmpty()));
}

TEST(Topology, LeavesTheEnvironmentAsItWas) {
  setenv("HWLOC_FSROOT", "/elsewhere", 1);
  fake("workstation");
  EXPECT_STREQ(std::getenv("HWLOC_FSROOT"), "/elsewhere");
  unsetenv("HWLOC_FSROOT");
  EXPECT_EQ(std::getenv("HWLOC_PLUGINS_PATH"), nullptr);
}

TEST(Topology, WhatIsNoTopologyIsAnError) {
  const FixtureTree tree;
  tree.write("empty.xml", "");
  tree.write("other.xml", "<?xml version=\"1.0\"?><html></html>");
  tree.write("torn.xml",
             "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n<object");
  for (const auto* file : {"empty.xml", "other.xml", "torn.xml"}) {
    EXPECT_THAT(test::message_of([&] { load_topology({.xml_file = tree.path() / file}); }, ErrorCode::kDataLoss),
                HasSubstr(file));
  }
  EXPECT_EQ(test::error_of([&] { load_topology({.xml_file = tree.path() / "missing.xml"}); }).code(),
            ErrorCode::kNotFound);
}

TEST(Topology, ItsGpusAsDevices) {
  const auto devices = devices_of(recorded("workstation"));
  ASSERT_THAT(devices, SizeIs(3));
  EXPECT_EQ(devices[0].vendor, Vendor::kAmd);
  EXPECT_EQ(devices[1].vendor, Vendor::kNvidia);
  EXPECT_EQ(devices[1].facts.pci_bus_id, "0000:0a:00.0");
  EXPECT_EQ(devices[1].facts.numa_node, 0);
}

}  // namespace
}  // namespace yoke::device

#include "yoke/device/cpu/locality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakes/sysfs/fixture_tree.h"
#include "yoke/base/error.h"
#include "yoke/device/topology/locality.h"
#include "yoke/device/visible_gpus.h"

namespace yoke::device {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

CpuSet cpus(std::string_view list) { return CpuSet::parse_list(list).value(); }
std::string sysroot(const std::string& name) { return YOKE_FAKE_SYSFS "/" + name; }
Topology topology(const std::string& name) { return load_topology({.xml_file = YOKE_TOPOLOGIES "/" + name + ".xml"}); }

constexpr const char* kMachines[] = {"lumi-g",  "workstation", "dgx-a100", "sierra",    "power8",
                                     "quartz",  "corona",      "mi300a",   "xeon-snc4", "epyc-workstation",
                                     "desktop", "gb200",       "vm"};

TEST(Locality, SysfsAndHwlocSayTheSame) {
  for (const auto* name : kMachines) {
    const auto known = topology(name);
    EXPECT_EQ(read_cpu_locality(sysroot(name)), cpu_locality(known)) << name;
    for (const auto& gpu : gpu_localities(known)) {
      EXPECT_EQ(read_device_locality(gpu.pci_bus_id, sysroot(name)), gpu) << name;
    }
  }
}

TEST(Locality, Sierra) {
  const auto locality = read_cpu_locality(sysroot("sierra"));
  EXPECT_EQ(locality.allowed, cpus("8-87,96-175"));
  EXPECT_THAT(locality.nodes, ElementsAre(NodeLocality{0, cpus("8-87")}, NodeLocality{8, cpus("96-175")}));
  EXPECT_EQ(locality.memory_nodes, (CpuSet{0, 8}));  // 252 to 255 are left out: the GPUs' memories
  EXPECT_THAT(locality.packages, ElementsAre(cpus("8-87"), cpus("96-175")));
  ASSERT_THAT(locality.cores, SizeIs(40));
  EXPECT_EQ(locality.cores[39], cpus("172-175"));
  ASSERT_THAT(locality.caches, SizeIs(20));
  EXPECT_EQ(locality.caches[0], cpus("8-15"));
}

TEST(Locality, ACacheOfOneCoreIsNoPlace) {
  EXPECT_THAT(read_cpu_locality(sysroot("power8")).caches, IsEmpty());
  EXPECT_THAT(read_cpu_locality(sysroot("vm")).caches, IsEmpty());
  EXPECT_THAT(read_cpu_locality(sysroot("desktop")).caches, SizeIs(1));
}

TEST(Locality, CoresOfSeveralKinds) {
  const auto locality = read_cpu_locality(sysroot("desktop"));
  ASSERT_THAT(locality.cores, SizeIs(24));
  EXPECT_EQ(locality.cores[7], cpus("14-15"));
  EXPECT_EQ(locality.cores[8], cpus("16"));
}

TEST(Locality, WhatTheProcessMayUse) {
  const fakes::FixtureTree tree(sysroot("lumi-g"), {"sys/devices/system", "proc/self"});
  tree.write("proc/self/status", "Name:\tyoke\nCpus_allowed_list:\t1-7,65-71,200\nMems_allowed_list:\t0,2\n");
  const auto locality = read_cpu_locality(tree.path());
  EXPECT_EQ(locality.allowed, cpus("1-7,65-71"));
  EXPECT_THAT(locality.cores, SizeIs(7));
  EXPECT_THAT(locality.caches, ElementsAre(cpus("0-7,64-71")));
  EXPECT_THAT(locality.nodes, SizeIs(4));
  EXPECT_EQ(locality.memory_nodes, (CpuSet{0, 2}));
  auto same = restrict(cpu_locality(topology("lumi-g")), cpus("1-7,65-71"));
  same.memory_nodes = {0, 2};
  EXPECT_EQ(locality, same);
}

TEST(Locality, AControlGroupsLimitOfTime) {
  const fakes::FixtureTree tree(sysroot("vm"), {"sys/devices/system", "proc/self"});
  tree.write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
  tree.write("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(read_cpu_locality(tree.path()).cpu_limit, 1.5);
}

TEST(Locality, Restrict) {
  const auto lumi = cpu_locality(topology("lumi-g"));
  EXPECT_EQ(restrict(lumi, cpus("0-7,500")).allowed, cpus("0-7"));
  EXPECT_EQ(restrict(lumi, lumi.allowed), lumi);
  EXPECT_THROW(restrict(lumi, cpus("500")), Error);
}

TEST(Locality, WhatCannotBeReadIsOne) {
  const fakes::FixtureTree empty;
  const auto locality = read_cpu_locality(empty.path());
  EXPECT_EQ(locality.allowed, CpuSet{0});
  EXPECT_THAT(locality.nodes, ElementsAre(NodeLocality{0, {0}}));
  EXPECT_THAT(locality.cores, ElementsAre(CpuSet{0}));
  empty.write("proc/self/status", "Cpus_allowed_list:\t0-3\n");
  EXPECT_THAT(read_cpu_locality(empty.path()).cores, SizeIs(4));
  EXPECT_EQ(read_device_locality("0000:01:00.0", empty.path()), std::nullopt);
}

// These files contradict each other, or contain invalid text.
TEST(Locality, FilesThatMakeNoSense) {
  const fakes::FixtureTree tree(sysroot("vm"), {"sys/devices/system", "proc/self"});
  const std::string cpu = "sys/devices/system/cpu/";
  tree.write(cpu + "cpu0/topology/thread_siblings_list", "0-7\n");
  tree.write(cpu + "cpu1/topology/thread_siblings_list", "2-3\n");
  tree.write(cpu + "cpu4/topology/core_siblings_list", "\x1b[31m,99999999999999999999\n");
  tree.write(cpu + "cpu5/cache/index0/level", "-1\n");
  tree.write(cpu + "cpu6/cache/index0/level", "3\n");
  tree.write("sys/devices/system/node/node0/cpulist", std::string(70'000, '7'));
  const auto locality = read_cpu_locality(tree.path());
  CpuSet seen;
  for (const auto& core : locality.cores) {
    EXPECT_FALSE(core.intersects(seen));
    seen |= core;
  }
  EXPECT_EQ(seen & locality.allowed, locality.allowed);
  EXPECT_THAT(locality.nodes, SizeIs(1));
}

TEST(Locality, ThisMachine) {
  const auto locality = read_cpu_locality();
  const auto known = cpu_locality(load_topology());
  EXPECT_EQ(locality.allowed, known.allowed);
  EXPECT_EQ(locality.nodes, known.nodes);
  EXPECT_EQ(locality.cores, known.cores);
  EXPECT_EQ(locality.caches, known.caches);
}

// ---- the GPUs of the ranks ------------------------------------------------------------------------------------------

std::vector<std::string> ids(const std::vector<DeviceLocality>& gpus) {
  std::vector<std::string> result;
  result.reserve(gpus.size());
  for (const auto& gpu : gpus) result.push_back(gpu.pci_bus_id);
  return result;
}

TEST(VisibleGpus, AreThoseOfTheTopologyInTheOrderOfTheRuntime) {
  for (const auto* name : {"lumi-g", "corona", "mi300a", "sierra", "xeon-snc4", "epyc-workstation", "gb200"}) {
    EXPECT_EQ(visible_gpus({}, sysroot(name)), gpu_localities(topology(name))) << name;
  }
  // The integrated GPU cannot compute, and the NVIDIA card has no driver.
  EXPECT_THAT(ids(visible_gpus({}, sysroot("workstation"))), ElementsAre("0000:03:00.0"));
  EXPECT_THAT(visible_gpus({}, sysroot("quartz")), IsEmpty());
}

TEST(VisibleGpus, ObeyTheVariables) {
  const auto lumi = [](const Environment& environment) { return ids(visible_gpus(environment, sysroot("lumi-g"))); };
  EXPECT_THAT(lumi({{"ROCR_VISIBLE_DEVICES", "3,1"}}), ElementsAre("0000:ce:00.0", "0000:c6:00.0"));
  EXPECT_THAT(lumi({{"ROCR_VISIBLE_DEVICES", "4,5"}, {"HIP_VISIBLE_DEVICES", "1"}}), ElementsAre("0000:d6:00.0"));
  const auto xeon = [](const Environment& environment) { return ids(visible_gpus(environment, sysroot("xeon-snc4"))); };
  EXPECT_THAT(xeon({{"CUDA_VISIBLE_DEVICES", "7,0"}}), ElementsAre("0000:df:00.0", "0000:1b:00.0"));
  EXPECT_THAT(xeon({{"CUDA_VISIBLE_DEVICES", "GPU-00000002"}}), ElementsAre("0000:52:00.0"));
  EXPECT_THAT(xeon({{"CUDA_VISIBLE_DEVICES", ""}}), IsEmpty());
}

}  // namespace
}  // namespace yoke::device

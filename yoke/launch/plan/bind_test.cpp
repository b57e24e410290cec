#include "yoke/launch/plan/bind.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/message_of.h"
#include "tests/support/sanitized.h"
#include "yoke/base/error.h"
#include "yoke/device/topology/locality.h"
#include "yoke/launch/plan/share_cpus.h"

namespace yoke::launch {
namespace {

using device::CpuLocality;
using device::DeviceLocality;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;
using Devices = std::vector<std::optional<DeviceLocality>>;

CpuSet cpus(std::string_view list) { return CpuSet::parse_list(list).value(); }

struct Machine {
  CpuLocality cpus;
  std::vector<DeviceLocality> gpus;
};

/// Reads a machine of fakes/topologies. If `allowed` is empty, all its CPUs may be used.
Machine machine(const std::string& name, const std::string& allowed = "") {
  const auto topology = device::load_topology({.xml_file = YOKE_TOPOLOGIES "/" + name + ".xml"});
  Machine result{cpu_locality(topology), gpu_localities(topology)};
  if (!allowed.empty()) result.cpus = restrict(result.cpus, cpus(allowed));
  return result;
}

/// Assigns GPU number (i modulo the number of GPUs) to rank i.
Devices in_turn(const Machine& machine, size_t num_ranks) {
  Devices devices(num_ranks);
  for (size_t rank = 0; rank < num_ranks; ++rank) devices[rank] = machine.gpus.at(rank % machine.gpus.size());
  return devices;
}

Devices no_devices(size_t num_ranks) { return Devices(num_ranks); }

std::string text(const Binding& binding) {
  std::vector<std::string> lists;
  for (const auto& rank : binding.ranks) lists.push_back(rank.cpus.to_list());
  return fmt::format("{}", fmt::join(lists, " "));
}

std::string nodes(const Binding& binding) {
  std::vector<std::string> lists;
  for (const auto& rank : binding.ranks) lists.push_back(rank.memory_nodes.to_list());
  return fmt::format("{}", fmt::join(lists, " "));
}

std::vector<int64_t> threads(const Binding& binding) {
  std::vector<int64_t> result;
  for (const auto& rank : binding.ranks) result.push_back(rank.num_threads);
  return result;
}

Binding bind_gpus(const std::string& mode, const Machine& machine, size_t num_ranks) {
  return plan_binding(parse_bind_mode(mode), machine.cpus, in_turn(machine, num_ranks));
}

Binding bind_cpus(const std::string& mode, const Machine& machine, size_t num_ranks) {
  return plan_binding(parse_bind_mode(mode), machine.cpus, no_devices(num_ranks));
}

// ---- LUMI-G ---------------------------------------------------------------------------------------------------------

// The CPUs that Slurm on LUMI allows. Slurm reserves the first core of each cache for the system.
constexpr const char* kLumiCores = "1-7,9-15,17-23,25-31,33-39,41-47,49-55,57-63";
constexpr const char* kLumiSiblings = ",65-71,73-79,81-87,89-95,97-103,105-111,113-119,121-127";

// The masks and the GPUs of each rank, from docs.lumi-supercomputer.eu, "Distribution and binding options".
const std::vector<std::string> kLumiMasks = {"0x00fe000000000000", "0xfe00000000000000", "0x0000000000fe0000",
                                             "0x00000000fe000000", "0x00000000000000fe", "0x000000000000fe00",
                                             "0x000000fe00000000", "0x0000fe0000000000"};

TEST(BindLumi, EqualsThePublishedMasks) {
  const auto lumi = machine("lumi-g", kLumiCores);
  const auto published = parse_bind_mode(fmt::format("mask:{}", fmt::join(kLumiMasks, ",")));
  for (const auto* mode : {"auto", "node", "cache"}) {
    const auto binding = bind_gpus(mode, lumi, 8);
    for (size_t rank = 0; rank < 8; ++rank) EXPECT_EQ(binding.ranks[rank].cpus, published.masks[rank]) << mode << rank;
    EXPECT_THAT(binding.warnings, IsEmpty());
    EXPECT_TRUE(binding.is_bound);
    EXPECT_EQ(nodes(binding), "3 3 1 1 0 0 2 2");
    EXPECT_THAT(threads(binding), ElementsAre(7, 7, 7, 7, 7, 7, 7, 7));
  }
}

TEST(BindLumi, SiblingsComeWithTheirCores) {
  const auto binding = bind_gpus("auto", machine("lumi-g", std::string(kLumiCores) + kLumiSiblings), 8);
  const CpuSet first_threads = cpus("0-63");
  for (size_t rank = 0; rank < 8; ++rank) {
    const auto published = CpuSet::parse_mask(kLumiMasks[rank]).value();
    CpuSet siblings;
    for (const auto cpu : published.to_vector()) siblings.add(cpu + 64);
    EXPECT_EQ(binding.ranks[rank].cpus & first_threads, published);
    EXPECT_EQ(binding.ranks[rank].cpus - first_threads, siblings);
    EXPECT_EQ(binding.ranks[rank].num_threads, 7);
  }
}

// Linux reports only the NUMA node of a GPU. For LUMI's hosts hwloc has a table that says which of the node's two
// caches is nearest to each GPU. The result must not depend on that table.
TEST(BindLumi, TheSameWhereOnlyTheNodeIsKnown) {
  auto lumi = machine("lumi-g", kLumiCores);
  for (auto& gpu : lumi.gpus) {
    for (const auto& node : lumi.cpus.nodes) {
      if (node.cpus.intersects(gpu.cpus)) gpu.cpus = node.cpus;
    }
  }
  const Devices reversed(lumi.gpus.rbegin(), lumi.gpus.rend());
  for (const auto* mode : {"auto", "cache"}) {
    const auto binding = bind_gpus(mode, lumi, 8);
    const auto turned = plan_binding(parse_bind_mode(mode), lumi.cpus, reversed);
    for (size_t rank = 0; rank < 8; ++rank) {
      EXPECT_EQ(binding.ranks[rank].cpus, CpuSet::parse_mask(kLumiMasks[rank])) << mode << rank;
      EXPECT_EQ(turned.ranks[7 - rank].cpus, CpuSet::parse_mask(kLumiMasks[rank])) << mode << rank;
    }
  }
}

TEST(BindLumi, CpusFollowTheDeviceNotTheRank) {
  const auto lumi = machine("lumi-g", kLumiCores);
  const Devices reversed(lumi.gpus.rbegin(), lumi.gpus.rend());
  const auto binding = plan_binding({}, lumi.cpus, reversed);
  for (size_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(binding.ranks[rank].cpus, CpuSet::parse_mask(kLumiMasks[7 - rank])) << rank;
  }
}

TEST(BindLumi, FewerAndMoreRanks) {
  const auto lumi = machine("lumi-g", kLumiCores);
  EXPECT_EQ(text(bind_gpus("auto", lumi, 1)), "49-55,57-63");  // no other rank uses this NUMA node
  EXPECT_EQ(text(bind_gpus("cache", lumi, 1)), "49-55");
  EXPECT_EQ(text(bind_gpus("auto", lumi, 3)), "49-55 57-63 17-23,25-31");
  // Two ranks share each GPU: ranks 0 and 8 divide the CPUs nearest to the first GPU.
  EXPECT_EQ(text(bind_gpus("auto", lumi, 16)),
            "49-52 57-60 17-20 25-28 1-4 9-12 33-36 41-44 53-55 61-63 21-23 29-31 5-7 13-15 37-39 45-47");
  EXPECT_EQ(text(bind_cpus("auto", lumi, 4)), "1-7,9-15 17-23,25-31 33-39,41-47 49-55,57-63");
  EXPECT_EQ(text(bind_cpus("auto", lumi, 8)), "1-7 9-15 17-23 25-31 33-39 41-47 49-55 57-63");
}

// LUMI had 63 cores for jobs before it reserved one core of each cache for the system.
TEST(BindLumi, UnevenCaches) {
  const auto lumi = machine("lumi-g", "1-63");
  EXPECT_EQ(text(bind_gpus("auto", lumi, 8)), "48-55 56-63 16-23 24-31 1-7 8-15 32-39 40-47");
  EXPECT_EQ(text(bind_cpus("auto", lumi, 8)), "1-7 8-15 16-23 24-31 32-39 40-47 48-55 56-63");
  // The two caches have 5 and 8 cores. The ranks share the larger one; the first rank also gets the other cache.
  EXPECT_EQ(text(bind_gpus("node", machine("lumi-g", "51-63"), 2)), "51-55,62-63 56-61");
}

// ---- mpibind --------------------------------------------------------------------------------------------------------

struct MpibindCase {
  const char* machine;
  const char* allowed;
  const char* mode;     ///< "node" on machines where all CPUs are equally near, because `auto` would not bind there.
  const char* devices;  ///< The device of each rank, as mpibind assigns it; nullptr: no devices.
  size_t num_ranks;
  const char* expected;  ///< The CPUs that mpibind assigns, and the other hardware threads of their cores.
};

// The mappings that mpibind's test suite expects, on machines synthesised from those in the suite. By default mpibind
// assigns only one hardware thread of each core; these mappings have all threads.
constexpr MpibindCase kMpibind[] = {
    {"quartz", "", "auto", nullptr, 1, "0-35"},
    {"quartz", "", "auto", nullptr, 2, "0-17 18-35"},
    {"quartz", "", "auto", nullptr, 36,
     "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35"},
    {"quartz", "0-17", "node", nullptr, 2, "0-8 9-17"},
    {"quartz", "0", "node", nullptr, 8, "0 0 0 0 0 0 0 0"},
    {"power8", "", "auto", nullptr, 1, "0-159"},
    {"power8", "", "auto", nullptr, 2, "0-79 80-159"},
    {"power8", "", "auto", nullptr, 20,
     "0-7 8-15 16-23 24-31 32-39 40-47 48-55 56-63 64-71 72-79 80-87 88-95 96-103 104-111 112-119 120-127 128-135 "
     "136-143 144-151 152-159"},
    {"power8", "0-79", "node", nullptr, 2, "0-39 40-79"},
    {"power8", "0-7", "node", nullptr, 8, "0 1 2 3 4 5 6 7"},
    {"power8", "0", "node", nullptr, 8, "0 0 0 0 0 0 0 0"},
    {"sierra", "", "auto", nullptr, 1, "8-87,96-175"},
    {"sierra", "", "auto", nullptr, 2, "8-87 96-175"},
    {"sierra", "", "auto", "0000000000111111111122222222223333333333", 40,
     "8-11 12-15 16-19 20-23 24-27 28-31 32-35 36-39 40-43 44-47 48-51 52-55 56-59 60-63 64-67 68-71 72-75 76-79 80-83 "
     "84-87 96-99 100-103 104-107 108-111 112-115 116-119 120-123 124-127 128-131 132-135 136-139 140-143 144-147 "
     "148-151 152-155 156-159 160-163 164-167 168-171 172-175"},
    {"sierra", "8-87", "auto", "01", 2, "8-47 48-87"},
    {"sierra", "8-11", "node", "0011", 4, "8 9 10 11"},
    {"sierra", "8", "node", "00001111", 8, "8 8 8 8 8 8 8 8"},
    {"corona", "", "auto", nullptr, 1, "0-95"},
    {"corona", "", "auto", nullptr, 2, "0-23,48-71 24-47,72-95"},
    {"corona", "", "auto", nullptr, 7,
     "0-11,48-59 12-17,60-65 18-23,66-71 24-29,72-77 30-35,78-83 36-41,84-89 42-47,90-95"},
    {"corona", "", "auto", nullptr, 8,
     "0-5,48-53 6-11,54-59 12-17,60-65 18-23,66-71 24-29,72-77 30-35,78-83 36-41,84-89 42-47,90-95"},
    {"corona", "", "auto", "00112233", 8,
     "6-8,54-56 9-11,57-59 12-14,60-62 15-17,63-65 30-32,78-80 33-35,81-83 42-44,90-92 45-47,93-95"},
    {"corona", "0,48", "node", nullptr, 2, "0 48"},
    {"corona", "0-5,48-53", "auto", nullptr, 2, "0-2,48-50 3-5,51-53"},
    {"corona", "0", "node", nullptr, 8, "0 0 0 0 0 0 0 0"},
};

TEST(Bind, EqualsMpibind) {
  for (const auto& one : kMpibind) {
    const auto there = machine(one.machine, one.allowed);
    Devices devices(one.num_ranks);
    for (size_t rank = 0; one.devices != nullptr && rank < one.num_ranks; ++rank) {
      devices[rank] = there.gpus.at(static_cast<size_t>(one.devices[rank] - '0'));
    }
    EXPECT_EQ(text(plan_binding(parse_bind_mode(one.mode), there.cpus, devices)), one.expected)
        << one.machine << " " << one.allowed << " " << one.num_ranks;
  }
}

// mpibind would put 12 ranks on the 6 cores near each GPU, and leave 24 cores idle.
TEST(Bind, ACoreForEachRankComesBeforeNearness) {
  const auto corona = machine("corona");
  const auto binding = bind_gpus("auto", corona, 48);
  CpuSet all;
  for (const auto& rank : binding.ranks) {
    EXPECT_THAT(rank.cpus.to_vector(), SizeIs(2));
    EXPECT_FALSE(rank.cpus.intersects(all));
    all |= rank.cpus;
  }
  EXPECT_EQ(all, corona.cpus.allowed);
  // The first ranks of each GPU get cores near that GPU; the others get cores in the same package.
  EXPECT_EQ(binding.ranks[0].cpus, cpus("6,54"));
  EXPECT_EQ(binding.ranks[44].cpus & cpus("24-47,72-95"), CpuSet());
  EXPECT_THAT(binding.warnings, ElementsAre(HasSubstr("too few cores are near the device")));
}

// ---- other machines -------------------------------------------------------------------------------------------------

TEST(Bind, DgxA100) {
  const auto dgx = machine("dgx-a100");
  EXPECT_EQ(text(bind_gpus("auto", dgx, 8)),
            "48-55,176-183 56-63,184-191 16-23,144-151 24-31,152-159 112-119,240-247 120-127,248-255 80-87,208-215 "
            "88-95,216-223");
  EXPECT_EQ(nodes(bind_gpus("auto", dgx, 8)), "3 3 1 1 7 7 5 5");
  // A socket has 64 cores and four GPUs. A rank first gets cores of its device's NUMA node, then of other nodes.
  const auto socket = bind_gpus("socket", dgx, 8);
  for (size_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(socket.ranks[rank].num_threads, 16);
    EXPECT_EQ((socket.ranks[rank].cpus & dgx.gpus[rank].cpus).size(), 16) << rank;  // 8 cores with two threads each
  }
  // Without SMT, ranks get the same cores.
  EXPECT_EQ(text(bind_gpus("auto", machine("dgx-a100", "0-127"), 8)),
            "48-55 56-63 16-23 24-31 112-119 120-127 80-87 88-95");
}

TEST(Bind, Mi300a) {
  const auto node = machine("mi300a");
  EXPECT_EQ(text(bind_gpus("auto", node, 4)), "0-23,96-119 24-47,120-143 48-71,144-167 72-95,168-191");
  EXPECT_EQ(text(bind_gpus("cache", node, 4)), "0-7,96-103 24-31,120-127 48-55,144-151 72-79,168-175");
  // With three ranks, one on each GPU, each rank gets a cache.
  EXPECT_EQ(text(bind_gpus("auto", machine("mi300a", "0-23"), 3)), "0-7 8-15 16-23");
}

TEST(Bind, SubNumaClusters) {
  const auto xeon = machine("xeon-snc4");
  EXPECT_EQ(text(bind_gpus("auto", machine("xeon-snc4", "0-111"), 8)),
            "0-13 14-27 28-41 42-55 56-69 70-83 84-97 98-111");
  EXPECT_EQ(text(bind_gpus("socket", xeon, 2)), "0-13,28-41,112-125,140-153 14-27,42-55,126-139,154-167");
  EXPECT_EQ(text(bind_cpus("auto", xeon, 2)), "0-55,112-167 56-111,168-223");
  EXPECT_EQ(text(bind_cpus("node", xeon, 2)), "0-13,112-125 56-69,168-181");
}

TEST(Bind, Gb200) {
  const auto node = machine("gb200");
  const auto binding = bind_gpus("auto", node, 4);
  EXPECT_EQ(text(binding), "0-35 36-71 72-107 108-143");
  EXPECT_EQ(nodes(binding), "0 0 1 1");  // the GPUs' own memories are NUMA nodes too, but never preferred
  EXPECT_THAT(threads(binding), ElementsAre(36, 36, 36, 36));
}

TEST(Bind, Sierra) {
  const auto node = machine("sierra");
  const auto binding = bind_gpus("auto", node, 4);
  EXPECT_EQ(text(binding), "8-47 48-87 96-135 136-175");
  EXPECT_EQ(nodes(binding), "0 0 8 8");
  EXPECT_THAT(threads(binding), ElementsAre(10, 10, 10, 10));  // the number of cores; each has four hardware threads
}

TEST(Bind, OneNodeIsDividedByCaches) {
  const auto workstation = machine("epyc-workstation");
  const auto binding = bind_gpus("auto", workstation, 4);
  EXPECT_EQ(text(binding), "0-7,32-39 8-15,40-47 16-23,48-55 24-31,56-63");
  EXPECT_EQ(nodes(binding), "   ");  // no preference, because there is only one NUMA node
  EXPECT_THAT(binding.reason, HasSubstr("divided between the ranks"));
  EXPECT_EQ(text(bind_gpus("auto", machine("epyc-workstation", "0-3"), 4)),
            "0-3 0-3 0-3 0-3");  // these CPUs share one cache
}

TEST(Bind, TwoDevicesBesideOneCacheHaveHalfOfItEach) {
  auto workstation = machine("epyc-workstation", "0-31");
  for (auto& gpu : workstation.gpus) gpu.cpus = cpus("8-11");
  EXPECT_EQ(text(bind_gpus("auto", workstation, 2)), "0-9,12-17 10-11,18-31");
}

TEST(Bind, AutoLeavesWhatIsFlat) {
  for (const auto* name : {"desktop", "vm"}) {
    const auto flat = machine(name);
    const auto binding = bind_gpus("auto", flat, 2);
    EXPECT_FALSE(binding.is_bound) << name;
    EXPECT_THAT(binding.reason, StartsWith("not bound: there is one NUMA node"));
    for (const auto& rank : binding.ranks) EXPECT_EQ(rank.cpus, flat.cpus.allowed);
    EXPECT_THAT(binding.warnings, IsEmpty());
    EXPECT_TRUE(bind_gpus("node", flat, 2).is_bound) << name;
  }
  EXPECT_THAT(threads(bind_gpus("auto", machine("desktop"), 2)),
              ElementsAre(12, 12));                                         // the machine has 24 cores with 32 CPUs
  EXPECT_EQ(text(bind_gpus("node", machine("desktop"), 2)), "0-19 20-31");  // each rank gets twelve cores
}

TEST(Bind, None) {
  const auto lumi = machine("lumi-g", kLumiCores);
  const auto binding = bind_gpus("none", lumi, 8);
  EXPECT_FALSE(binding.is_bound);
  for (const auto& rank : binding.ranks) EXPECT_EQ(rank.cpus, lumi.cpus.allowed);
  EXPECT_THAT(threads(binding), testing::Each(7));
}

// ---- what is not ideal ----------------------------------------------------------------------------------------------

// The job may use only the cores of one NUMA node, and most of its GPUs are near other nodes.
TEST(Bind, NoAllowedCpuBesideTheDevice) {
  const auto binding = bind_gpus("auto", machine("lumi-g", "0-15"), 8);
  EXPECT_EQ(text(binding), "2-3 4-5 6-7 10-11 0-1 8-9 12-13 14-15");  // only ranks 4 and 5 are near their GPUs
  EXPECT_THAT(binding.warnings, ElementsAre(HasSubstr("ranks 0-3,6-7: none of the CPUs near the device")));
  EXPECT_EQ(nodes(binding), "0 0 0 0 0 0 0 0");
  // Each rank gets CPUs of the package that its device is on.
  const auto dgx = machine("dgx-a100", "0-15,64-79");
  EXPECT_EQ(text(plan_binding({}, dgx.cpus, {dgx.gpus[5], dgx.gpus[1]})), "64-79 0-15");
}

TEST(Bind, MoreRanksThanCores) {
  const auto corona = machine("corona", "0-5,48-53");
  const auto halves = bind_cpus("node", corona, 12);
  EXPECT_EQ(text(halves), "0 48 1 49 2 50 3 51 4 52 5 53");
  EXPECT_THAT(threads(halves), testing::Each(1));
  EXPECT_THAT(halves.warnings,
              ElementsAre("12 ranks on 6 cores: some ranks get only a part of a core's hardware threads"));
  EXPECT_EQ(text(bind_cpus("node", corona, 8)), "0 48 1,49 2,50 3 51 4,52 5,53");
}

TEST(Bind, MoreRanksThanCpus) {
  const auto binding = bind_cpus("auto", machine("corona", "0-5"), 8);
  EXPECT_THAT(binding.warnings, ElementsAre("8 ranks share 6 CPUs; start fewer ranks"));
  for (const auto& rank : binding.ranks) {
    EXPECT_EQ(rank.num_threads, 1);
    EXPECT_TRUE(rank.cpus.is_subset_of(cpus("0-5")));
  }
}

TEST(Bind, UnknownNodeOfADevice) {
  auto dgx = machine("dgx-a100");
  for (auto& gpu : dgx.gpus) gpu.cpus = dgx.cpus.allowed;  // the kernel's report if the firmware reports nothing
  const auto everywhere = bind_gpus("auto", dgx, 8);
  EXPECT_EQ(text(everywhere), text(bind_cpus("auto", dgx, 8)));
  EXPECT_THAT(everywhere.warnings, ElementsAre(StartsWith("ranks 0-7: the NUMA node of the device is not known")));
  for (auto& gpu : dgx.gpus) gpu.cpus = {};
  EXPECT_EQ(text(bind_gpus("auto", dgx, 8)), text(everywhere));
}

TEST(Bind, RanksWithAndWithoutADevice) {
  const auto lumi = machine("lumi-g", kLumiCores);
  Devices devices = in_turn(lumi, 2);
  devices.resize(4);
  EXPECT_EQ(text(plan_binding({}, lumi.cpus, devices)), "49-55 57-63 1-7,9-15 17-23,25-31");
}

// A container's CPU quota may be lower than the number of its CPUs.
TEST(Bind, AControlGroupsLimitOfTime) {
  auto lumi = machine("lumi-g", kLumiCores);
  lumi.cpus.cpu_limit = 16.5;
  EXPECT_THAT(threads(bind_gpus("auto", lumi, 8)), testing::Each(2));
  EXPECT_THAT(threads(bind_gpus("auto", lumi, 1)), ElementsAre(14));
  lumi.cpus.cpu_limit = 0.5;
  EXPECT_THAT(threads(bind_gpus("none", lumi, 1)), ElementsAre(1));
}

TEST(Bind, NodesWhoseMemoryMayNotBeUsed) {
  auto lumi = machine("lumi-g", kLumiCores);
  lumi.cpus.memory_nodes = {0, 1};
  EXPECT_EQ(nodes(bind_gpus("auto", lumi, 8)), "  1 1 0 0  ");
}

// ---- masks ----------------------------------------------------------------------------------------------------------

TEST(BindMode, Parses) {
  EXPECT_EQ(parse_bind_mode("auto").kind, BindMode::Kind::kAuto);
  EXPECT_EQ(parse_bind_mode("socket").kind, BindMode::Kind::kSocket);
  EXPECT_THAT(parse_bind_mode("mask:0xfe,fe00").masks, ElementsAre(cpus("1-7"), cpus("9-15")));
  EXPECT_THAT(parse_bind_mode("cpus:1-7,9").masks, ElementsAre(cpus("1-7"), cpus("9")));
  EXPECT_THAT(parse_bind_mode("cpus:1-3+65-67,4").masks, ElementsAre(cpus("1-3,65-67"), cpus("4")));
  for (const auto* wrong : {"", "nodes", "AUTO", "mask:", "mask:0x0", "mask:0xfe,", "mask:1-7", "cpus:", "cpus:7-1",
                            "cpus:1,,2", "cpus:0xfe", "mask"}) {
    EXPECT_THROW(parse_bind_mode(wrong), Error) << wrong;
  }
}

TEST(Bind, ExplicitMasks) {
  const auto lumi = machine("lumi-g", kLumiCores);
  const auto binding = plan_binding(parse_bind_mode("cpus:1-7,17-23+25-31"), lumi.cpus, no_devices(2));
  EXPECT_EQ(text(binding), "1-7 17-23,25-31");
  EXPECT_EQ(nodes(binding), "0 1");
  EXPECT_THAT(threads(binding), ElementsAre(7, 14));
  EXPECT_THAT(binding.warnings, IsEmpty());
  // Masks beyond the number of ranks are ignored, as srun does.
  EXPECT_EQ(text(plan_binding(parse_bind_mode("cpus:1,2,3"), lumi.cpus, no_devices(2))), "1 2");
}

TEST(Bind, MasksThatDoNotFit) {
  const auto lumi = machine("lumi-g", kLumiCores);
  const auto try_masks = [&](const char* masks) {
    return plan_binding(parse_bind_mode(masks), lumi.cpus, no_devices(2));
  };
  EXPECT_THAT(test::message_of([&] { try_masks("cpus:1-7"); }), HasSubstr("1 masks for 2 ranks"));
  EXPECT_THROW(try_masks("cpus:1-7,8"), Error);  // the second rank's only CPU is not allowed
  EXPECT_THAT(try_masks("cpus:0-7,9").warnings, ElementsAre(HasSubstr("rank 0: some CPUs of the mask may not")));
  EXPECT_THAT(try_masks("cpus:1-7,7").warnings, ElementsAre(HasSubstr("rank 1: the mask overlaps that of a lower")));
}

// ---- on any machine -------------------------------------------------------------------------------------------------

struct RandomMachine {
  Machine machine;
  size_t num_ranks = 1;
  Devices devices;
};

RandomMachine make_machine(std::mt19937& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  RandomMachine result;
  auto& there = result.machine.cpus;
  const auto threads = pick(1, 4), cores_per_cache = pick(1, 5), caches_per_node = pick(1, 4), num_nodes = pick(1, 8);
  const auto nodes_per_package = pick(1, 2);
  const auto num_cores = cores_per_cache * caches_per_node * num_nodes;
  for (int64_t core = 0; core < num_cores; ++core) {
    CpuSet set;
    for (int64_t thread = 0; thread < threads; ++thread) set.add(core + thread * num_cores);
    const auto append = [&](std::vector<CpuSet>& sets, int64_t number) {
      if (number == static_cast<int64_t>(sets.size())) sets.emplace_back();
      sets[static_cast<size_t>(number)] |= set;
    };
    there.cores.push_back(set);
    append(there.caches, core / cores_per_cache);
    const auto node = core / (cores_per_cache * caches_per_node);
    append(there.packages, node / nodes_per_package);
    if (node == static_cast<int64_t>(there.nodes.size())) there.nodes.push_back({node, {}});
    there.nodes.back().cpus |= set;
    there.memory_nodes.add(node);
    for (const auto cpu : set.to_vector()) {
      if (pick(0, 9) > 0) there.allowed.add(cpu);
    }
  }
  if (there.allowed.empty()) there.allowed = there.cores[0];
  keep_shared_and_allowed(there);
  const auto num_devices = pick(0, 8);
  for (int64_t i = 0; i < num_devices; ++i) {
    const auto& near = pick(0, 2) > 0 || there.caches.empty()
                           ? there.nodes[static_cast<size_t>(pick(0, num_nodes - 1))].cpus
                           : there.caches[static_cast<size_t>(pick(0, static_cast<int64_t>(there.caches.size()) - 1))];
    result.machine.gpus.push_back({fmt::format("0000:{:02x}:00.0", i), near});
  }
  result.num_ranks = static_cast<size_t>(pick(1, pick(0, 3) == 0 ? 3 * there.allowed.size() : 12));
  result.devices = num_devices == 0 ? no_devices(result.num_ranks) : in_turn(result.machine, result.num_ranks);
  return result;
}

TEST(Bind, HoldsItsPromisesOnAnyMachine) {
  const int num_rounds = test::kIsSanitized ? 400 : 4000;  // 4000 rounds take a minute with a sanitizer
  std::mt19937 random(20'260'901);
  for (int round = 0; round < num_rounds; ++round) {
    const auto made = make_machine(random);
    const auto& there = made.machine.cpus;
    const auto& devices = made.devices;
    const auto num_ranks = made.num_ranks;
    const auto num = static_cast<int64_t>(num_ranks);
    const auto num_cores = static_cast<int64_t>(there.cores.size());
    std::vector<CpuSet> node_sets;
    for (const auto& node : there.nodes) node_sets.push_back(node.cpus);
    const bool is_one_node = partition(node_sets, there.allowed).size() == 1;
    for (const auto* mode : {"auto", "node", "socket", "cache"}) {
      SCOPED_TRACE(fmt::format("round {} {} {} ranks", round, mode, num));
      const auto binding = plan_binding(parse_bind_mode(mode), there, devices);
      ASSERT_EQ(binding.ranks.size(), num_ranks);
      CpuSet seen;
      for (size_t rank = 0; rank < num_ranks; ++rank) {
        const auto& one = binding.ranks[rank];
        ASSERT_FALSE(one.cpus.empty());
        ASSERT_TRUE(one.cpus.is_subset_of(there.allowed));
        ASSERT_GE(one.num_threads, 1);
        ASSERT_LE(one.num_threads, one.cpus.size());
        ASSERT_TRUE(one.memory_nodes.is_subset_of(there.memory_nodes));
        if (!binding.is_bound) continue;
        if (num <= there.allowed.size()) {
          ASSERT_FALSE(one.cpus.intersects(seen)) << "not disjoint";
        }
        seen |= one.cpus;
        if (num > num_cores) continue;
        if (is_one_node && mode == std::string("node")) {
          const auto cores = std::count_if(there.cores.begin(), there.cores.end(),
                                           [&](const CpuSet& core) { return core.intersects(one.cpus); });
          ASSERT_GE(cores, num_cores / num) << "not even";
        }
        for (const auto& core : there.cores) {
          ASSERT_TRUE(!one.cpus.intersects(core) || (core & there.allowed).is_subset_of(one.cpus)) << "a core is split";
        }
        // A rank gets CPUs near its device if all ranks with devices there can get enough cores.
        if (!devices[rank] || mode == std::string("cache")) continue;
        CpuSet home;
        const auto collect = [&](const CpuSet& set) {
          if (set.intersects(devices[rank]->cpus)) home |= set & there.allowed;
        };
        if (mode == std::string("socket")) {
          for (const auto& package : there.packages) collect(package);
        } else {
          for (const auto& node : there.nodes) collect(node.cpus);
        }
        const auto crowd = std::count_if(devices.begin(), devices.end(), [&](const auto& other) {
          return other && (other->cpus.intersects(home) || !other->cpus.intersects(there.allowed));
        });
        const auto cores = std::count_if(there.cores.begin(), there.cores.end(),
                                         [&](const CpuSet& core) { return core.intersects(home); });
        if (!home.empty() && crowd <= cores) {
          ASSERT_TRUE(one.cpus.is_subset_of(home)) << one.cpus.to_list() << " is not in " << home.to_list();
        }
      }
      if (is_one_node && mode == std::string("node")) {
        EXPECT_EQ(seen, binding.is_bound ? there.allowed : CpuSet()) << "CPUs are idle";
      }
    }
  }
}

}  // namespace
}  // namespace yoke::launch

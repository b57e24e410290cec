#include "yoke/device/detail/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "fakes/sysfs/fixture_tree.h"
#include "yoke/base/file.h"
#include "yoke/device/amdgpu/detail/card.h"
#include "yoke/device/amdgpu/detail/kfd.h"

namespace yoke::device {
namespace {

using fakes::FixtureTree;

namespace fs = std::filesystem;

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kLumi = YOKE_FAKE_SYSFS "/lumi-g";
constexpr const char* kWorkstation = YOKE_FAKE_SYSFS "/workstation";
/// A copy of the recorded workstation's files of amdgpu and KFD. Tests change the copy.
struct AmdTree : FixtureTree {
  AmdTree()
      : FixtureTree(kWorkstation, {"sys/bus", "sys/class", "sys/devices/pci0000:00", "sys/devices/virtual",
                                   "sys/module", "dev", "usr"}) {}
};

constexpr int64_t kMib = int64_t{1} << 20, kGib = int64_t{1} << 30;

std::vector<Device> read_all(Backend& backend, const Want& want = Want::everything()) {
  std::vector<Device> devices;
  for (int64_t i = 0; i < backend.num_devices(); ++i) {
    auto& device = devices.emplace_back();
    device.index = i;
    device.vendor = backend.vendor();
    backend.read(i, want, device, [](const Device&) {});
  }
  return devices;
}

std::vector<Device> read_all(const fs::path& sysroot, const Want& want = Want::everything()) {
  const auto backend = make_amdgpu_backend(sysroot);
  backend->open();
  return read_all(*backend, want);
}

template <typename Get>
auto each(const std::vector<Device>& devices, const Get& get) {
  std::vector<std::decay_t<decltype(get(devices[0]))>> result;
  std::transform(devices.begin(), devices.end(), std::back_inserter(result), get);
  return result;
}

TEST(Amdgpu, LumiHasEightDevicesOnTheirNumaNodes) {
  const auto devices = read_all(kLumi);
  ASSERT_THAT(devices, SizeIs(8));
  EXPECT_THAT(each(devices, [](const Device& device) { return device.facts.pci_bus_id; }),
              ElementsAre("0000:c1:00.0", "0000:c6:00.0", "0000:c9:00.0", "0000:ce:00.0", "0000:d1:00.0",
                          "0000:d6:00.0", "0000:d9:00.0", "0000:de:00.0"));
  // docs.lumi-supercomputer.eu: "there is no direct link between the numbering of GCDs and NUMA nodes".
  EXPECT_THAT(each(devices, [](const Device& device) { return device.facts.numa_node.value(); }),
              ElementsAre(3, 3, 1, 1, 0, 0, 2, 2));
  EXPECT_THAT(each(devices, [](const Device& device) { return device.facts.vendor_index.value(); }),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(devices[0].facts.cpu_affinity, "48-55,112-119");
  EXPECT_EQ(devices[7].facts.cpu_affinity, "40-47,104-111");
}

TEST(Amdgpu, FactsOfAGcd) {
  const auto device = read_all(kLumi).at(1);
  EXPECT_EQ(device.vendor, Vendor::kAmd);
  EXPECT_EQ(device.facts.name, "AMD Instinct MI250X");
  EXPECT_EQ(device.facts.uuid, "GPU-6a1f0c3d9e4b8311");
  EXPECT_EQ(device.facts.target, "gfx90a");
  EXPECT_EQ(device.facts.minor_number, 129);
  EXPECT_EQ(device.facts.serial, "PCB03120");
  EXPECT_EQ(device.facts.vbios, "113-D65209-073");
  EXPECT_EQ(device.facts.clock_sm_max_mhz, 1700);
  EXPECT_EQ(device.facts.clock_memory_max_mhz, 1600);
  EXPECT_EQ(device.facts.pcie_generation_max, 4);
  EXPECT_EQ(device.facts.temperature_slowdown_celsius, 100);
  EXPECT_EQ(device.facts.temperature_shutdown_celsius, 105);
}

TEST(Amdgpu, ReadingsOfAGcd) {
  const auto now = read_all(kLumi).at(0).readings;
  EXPECT_EQ(now.memory_total_bytes, 64 * kGib - 16 * kMib);
  EXPECT_EQ(now.memory_used_bytes, 12 * kGib);
  EXPECT_EQ(now.memory_free_bytes, 52 * kGib - 16 * kMib);
  EXPECT_EQ(now.memory_reserved_bytes, std::nullopt);
  EXPECT_EQ(now.utilization_percent, 98);
  EXPECT_EQ(now.memory_utilization_percent, 37);
  EXPECT_EQ(now.temperature_celsius, 41);  // edge, not junction
  EXPECT_EQ(now.memory_temperature_celsius, 52);
  EXPECT_EQ(now.clock_sm_mhz, 1650);
  EXPECT_EQ(now.clock_memory_mhz, 1600);
  EXPECT_EQ(now.pcie_generation, 4);
  EXPECT_EQ(now.pcie_width, 16);
  EXPECT_EQ(now.pcie_replays, 0);
  EXPECT_EQ(now.fan_percent, std::nullopt);
}

TEST(Amdgpu, ThePowerOfTheSecondGcdIsUnknownAndNotZero) {
  const auto devices = read_all(kLumi);
  for (size_t i = 0; i < devices.size(); ++i) {
    const bool is_first = i % 2 == 0;
    EXPECT_EQ(devices[i].readings.power_mw.has_value(), is_first) << i;
    EXPECT_EQ(devices[i].readings.power_limit_mw.has_value(), is_first) << i;
    EXPECT_EQ(devices[i].facts.power_limit_max_mw.has_value(), is_first) << i;
  }
  EXPECT_EQ(devices[0].readings.power_mw, 438'000);
  EXPECT_EQ(devices[0].readings.power_limit_mw, 560'000);
}

TEST(Amdgpu, MemoryErrorsAreSummedOverBlocks) {
  const auto devices = read_all(kLumi);
  EXPECT_EQ(devices[0].readings.ecc_corrected_volatile, 0);
  EXPECT_EQ(devices[0].readings.retired_pages, 0);
  EXPECT_EQ(devices[0].readings.retirement_pending, false);
  EXPECT_EQ(devices[4].readings.ecc_corrected_volatile, 2);
  EXPECT_EQ(devices[4].readings.ecc_uncorrected_volatile, 0);
  EXPECT_EQ(devices[4].readings.retired_pages, 1);
  EXPECT_EQ(devices[4].readings.retirement_pending, true);
}

TEST(Amdgpu, AProcessBelongsToTheGpusThatItUses) {
  const auto devices = read_all(kLumi);
  const auto pids = each(devices, [](const Device& device) {
    std::vector<int64_t> found;
    for (const auto& process : device.processes) found.push_back(process.pid);
    return found;
  });
  // Process 71003 has opened the driver but uses no GPU. KFD has files about all eight GPUs for each process.
  using Pids = std::vector<int64_t>;
  EXPECT_THAT(pids, ElementsAre(Pids{71001}, Pids{71002}, Pids{71004}, Pids{}, Pids{}, Pids{}, Pids{}, Pids{}));
  const auto& process = devices[0].processes[0];
  EXPECT_EQ(process.type, "compute");
  EXPECT_EQ(process.memory_bytes, 12 * kGib - 20 * kMib);
  EXPECT_EQ(process.utilization_percent, 94);          // 104 of 110 units
  EXPECT_EQ(devices[2].processes[0].memory_bytes, 0);  // the process has a queue on this GPU, but no memory
  EXPECT_EQ(devices[0].state, State::kBusy);
  EXPECT_EQ(devices[3].state, State::kFree);
}

TEST(Amdgpu, LinksAreThoseToNeighbours) {
  const auto devices = read_all(kLumi);
  ASSERT_TRUE(devices[0].links);
  const auto remotes = [&](size_t i) {
    std::vector<std::string> found;
    for (const auto& link : *devices[i].links) found.push_back(link.remote_pci_bus_id);
    return found;
  };
  EXPECT_THAT(remotes(0), ElementsAre("0000:c6:00.0", "0000:c6:00.0", "0000:c6:00.0", "0000:c6:00.0", "0000:c9:00.0",
                                      "0000:d9:00.0", "0000:d9:00.0"));
  EXPECT_THAT(*devices[7].links, AllOf(SizeIs(6), Each(testing::Field(&Link::kind, "xgmi"))));
}

TEST(Amdgpu, ReadsOnlyWhatIsWanted) {
  const auto device = read_all(kLumi, Want{.processes = false}).at(0);
  EXPECT_THAT(device.processes, IsEmpty());
  EXPECT_FALSE(device.links);
  EXPECT_FALSE(device.facts.numa_node);
  EXPECT_FALSE(device.readings.clock_sm_mhz);
  EXPECT_EQ(device.readings.utilization_percent, 98);
  EXPECT_EQ(device.readings.power_mw, 438'000);
}

TEST(Amdgpu, ARadeonCardAndTheGpuInTheProcessor) {
  const auto devices = read_all(kWorkstation);
  ASSERT_THAT(devices, SizeIs(2));
  const auto& card = devices[0];
  EXPECT_EQ(card.facts.name, "AMD Radeon RX 7900 XTX");  // the name in libdrm's list
  EXPECT_EQ(card.facts.target, "gfx1100");
  EXPECT_EQ(card.readings.fan_percent, 20);
  EXPECT_EQ(card.readings.power_mw, 31'500);
  EXPECT_EQ(card.facts.power_limit_min_mw, 272'000);
  // The expected link is the one above the topmost bridge. The link to the card's own bridge has 16 lanes of generation
  // 4.
  EXPECT_EQ(card.readings.pcie_generation, 3);
  EXPECT_EQ(card.readings.pcie_width, 4);
  EXPECT_EQ(card.facts.pcie_width_max, 16);
  EXPECT_EQ(card.facts.numa_node, std::nullopt);  // the file has -1: unknown

  const auto& integrated = devices[1];  // KFD does not list this GPU
  EXPECT_EQ(integrated.facts.name, "AMD Radeon Graphics");
  EXPECT_EQ(integrated.facts.pci_bus_id, "0000:12:00.0");
  EXPECT_EQ(integrated.facts.vendor_index, std::nullopt);
  EXPECT_THAT(integrated.facts.uuid, IsEmpty());
  EXPECT_EQ(integrated.facts.minor_number, 128);
  EXPECT_EQ(integrated.readings.memory_total_bytes, 512 * kMib);
  EXPECT_EQ(integrated.readings.power_mw, std::nullopt);
  EXPECT_EQ(integrated.state, State::kFree);
}

TEST(Amdgpu, WithoutKfdCardsAreStillThere) {
  const AmdTree tree;
  tree.remove("sys/class/kfd");
  tree.remove("dev/kfd");
  const auto devices = read_all(tree.path());
  ASSERT_THAT(devices, SizeIs(2));
  EXPECT_EQ(devices[0].facts.uuid, "GPU-5d3a0f7c21b84e96");
  EXPECT_EQ(devices[0].state, State::kBusy);  // no known process holds the GPU's used memory, over 1 GiB
  EXPECT_THAT(devices[0].processes, IsEmpty());
}

TEST(Amdgpu, NoDriverIsAReason) {
  const FixtureTree tree;
  const auto backend = make_amdgpu_backend(tree.path());
  auto report = backend->open();
  EXPECT_FALSE(report.is_available);
  EXPECT_EQ(report.backend, "amdgpu");
  EXPECT_EQ(report.reason, "no AMD GPU (the amdgpu driver is not loaded)");
  EXPECT_EQ(backend->num_devices(), 0);
  tree.write("sys/module/amdgpu/version", "6.10.5\n");
  report = make_amdgpu_backend(tree.path())->open();
  EXPECT_EQ(report.reason, "no AMD GPU (the amdgpu driver is loaded, but drives no device)");
  EXPECT_EQ(report.driver_version, "6.10.5");
}

TEST(Amdgpu, SaysWhatKeepsProgramsFromUsingIt) {
  const AmdTree tree;
  tree.remove("dev/kfd");
  auto device = read_all(tree.path()).at(0);
  EXPECT_EQ(device.state, State::kNoPermission);
  EXPECT_THAT(device.reason, AllOf(HasSubstr("there is no /dev/kfd here"), HasSubstr("--device")));
  EXPECT_EQ(device.readings.utilization_percent, 3);  // reading sensors does not need the permission

  tree.write("dev/kfd", "");
  fs::permissions(tree.path() / "dev/kfd", fs::perms::none);
  if (geteuid() == 0) {
    fs::permissions(tree.path(), fs::perms(0755));
    ASSERT_EQ(seteuid(65'534), 0);  // permissions do not restrict root
  }
  device = read_all(tree.path()).at(0);
  if (getuid() == 0) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_EQ(device.state, State::kNoPermission);
  EXPECT_THAT(device.reason, AllOf(HasSubstr("may not open /dev/kfd"), HasSubstr("render")));

  tree.remove("dev");  // a copy of /sys without /dev says nothing about permissions
  EXPECT_EQ(read_all(tree.path()).at(0).state, State::kBusy);
}

TEST(Amdgpu, WhatACgroupWithholdsIsShownAsSuch) {
  const AmdTree tree;
  // The kernel would return EPERM. A test can only put a folder in place of the file.
  tree.remove("sys/class/kfd/kfd/topology/nodes/1/gpu_id");
  tree.write("sys/class/kfd/kfd/topology/nodes/1/gpu_id/x", "");
  const auto device = read_all(tree.path()).at(0);
  EXPECT_EQ(device.facts.pci_bus_id, "0000:03:00.0");
  EXPECT_EQ(device.facts.vendor_index, std::nullopt);  // programs do not see this GPU
  EXPECT_EQ(device.state, State::kNoPermission);
  EXPECT_THAT(device.reason, HasSubstr("cgroup"));
}

TEST(Amdgpu, ACardThatLeavesTheBusIsLost) {
  const AmdTree tree;
  const auto backend = make_amdgpu_backend(tree.path());
  backend->open();
  const auto before = read_all(*backend).at(0);
  EXPECT_EQ(before.state, State::kBusy);
  tree.remove("sys/devices/pci0000:00/0000:00:01.1");
  const auto after = read_all(*backend).at(0);
  EXPECT_EQ(after.state, State::kLost);
  EXPECT_EQ(after.facts, before.facts);
  EXPECT_EQ(after.readings, Readings());
}

TEST(Amdgpu, ASleepingCardIsNotWoken) {
  const AmdTree tree;
  const std::string folder = "sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:00.0";
  tree.write(folder + "/power/runtime_status", "suspended\n");
  const auto device = read_all(tree.path()).at(0);
  EXPECT_EQ(device.readings.memory_total_bytes, 24'560 * kMib);
  EXPECT_EQ(device.readings.utilization_percent, std::nullopt);
  EXPECT_EQ(device.readings.temperature_celsius, std::nullopt);
  EXPECT_EQ(device.readings.power_mw, std::nullopt);
  EXPECT_EQ(device.facts.uuid, "GPU-5d3a0f7c21b84e96");
}

TEST(Amdgpu, PartitionsOfACardAreDevices) {
  const AmdTree tree;
  const std::string nodes = "sys/class/kfd/kfd/topology/nodes/";
  const auto location = 3 << 8 | 1 << 28;
  tree.write(nodes + "2/gpu_id", "19012");
  tree.write(nodes + "2/properties", "simd_count 152\nsimd_per_cu 4\ngfx_target_version 90402\nlocation_id " +
                                         std::to_string(location) + "\ndomain 0\ndrm_render_minor 130\nunique_id 99\n");
  tree.write(nodes + "2/mem_banks/0/properties", "heap_type 1\nsize_in_bytes 25769803776\n");
  tree.write("dev/dri/renderD130", "");
  tree.write(nodes + "2/mem_banks/0/used_memory", "1073741824\n");
  const auto devices = read_all(tree.path());
  ASSERT_THAT(devices, SizeIs(3));
  EXPECT_EQ(devices[1].facts.vendor_index, 1);
  EXPECT_EQ(devices[1].facts.pci_bus_id, "0000:03:00.0");
  EXPECT_EQ(devices[1].facts.uuid, "GPU-0000000000000063");
  EXPECT_EQ(devices[1].facts.target, "gfx942");
  EXPECT_EQ(devices[1].readings.memory_total_bytes, 24 * kGib);
  EXPECT_EQ(devices[1].readings.memory_used_bytes, kGib);
  EXPECT_EQ(devices[1].readings.memory_free_bytes, 23 * kGib);
  // The files of the card are about all partitions, so the first one must not report them as its own.
  EXPECT_EQ(devices[0].readings.memory_total_bytes, 24'560 * kMib) << "what KFD says";
  EXPECT_EQ(devices[0].readings.memory_used_bytes, std::nullopt);
  EXPECT_EQ(devices[0].readings.utilization_percent, std::nullopt);
  // Power is measured for the whole card, and only its first device reports it.
  EXPECT_EQ(devices[1].readings.power_mw, std::nullopt);
  EXPECT_EQ(devices[0].readings.power_mw, 31'500);
}

TEST(Amdgpu, AGpuInAProcessorComputesInTheMemoryOfTheMachine) {
  const AmdTree tree;
  const std::string folder = "sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:00.0/";
  tree.write(folder + "mem_info_gtt_total", std::to_string(124 * kGib));
  tree.write(folder + "mem_info_gtt_used", std::to_string(24 * kGib));
  EXPECT_EQ(read_all(tree.path()).at(0).readings.memory_total_bytes, 24'560 * kMib) << "a card has its own";
  const std::string properties = "sys/class/kfd/kfd/topology/nodes/1/properties";
  auto text = read_file(tree.path() / properties);
  text.replace(text.find("gfx_target_version 110000"), 25, "gfx_target_version 110501");  // Strix Halo
  tree.write(properties, text);
  tree.remove("sys/class/kfd/kfd/proc/2210");
  const auto device = read_all(tree.path()).at(0);
  EXPECT_EQ(device.facts.target, "gfx1151");
  EXPECT_EQ(device.readings.memory_total_bytes, 124 * kGib);
  EXPECT_EQ(device.readings.memory_free_bytes, 100 * kGib);
  EXPECT_EQ(device.readings.unified_memory, true);
  EXPECT_EQ(device.state, State::kFree) << "its memory does not tell who uses it";
  tree.write(folder + "mem_info_gtt_total", std::to_string(8 * kGib));
  EXPECT_EQ(read_all(tree.path()).at(0).readings.memory_total_bytes, 24'560 * kMib) << "the larger one counts";
}

TEST(AmdgpuFiles, AnyContentIsHarmless) {
  const AmdTree tree;
  const std::string folder = "sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:00.0/";
  const std::string nasty("\xff\x1b[31m\0 99999999999999999999999 -\n:\n", 36);
  for (const auto* file : {"gpu_busy_percent", "mem_info_vram_total", "unique_id", "pp_dpm_sclk", "current_link_speed",
                           "ras/umc_err_count", "ras/gpu_vram_bad_pages", "uevent", "local_cpulist", "numa_node",
                           "device", "hwmon/hwmon1/temp1_input", "hwmon/hwmon1/temp1_label", "hwmon/hwmon1/pwm1_max"}) {
    tree.write(folder + file, nasty);
  }
  const std::string nodes = "sys/class/kfd/kfd/topology/nodes/1/";
  for (const auto* file : {"mem_banks/0/properties", "io_links/0/properties"}) tree.write(nodes + file, nasty);
  tree.write("sys/class/kfd/kfd/proc/2210/vram_19011", nasty);
  const auto device = read_all(tree.path()).at(0);
  EXPECT_EQ(device.readings.utilization_percent, std::nullopt);
  EXPECT_EQ(device.facts.name, "AMD 0x0000");
}

TEST(AmdgpuFiles, PcieGenerations) {
  EXPECT_EQ(amdgpu::pcie_generation("2.5 GT/s PCIe"), 1);
  EXPECT_EQ(amdgpu::pcie_generation("5 GT/s"), 2);
  EXPECT_EQ(amdgpu::pcie_generation("16.0 GT/s PCIe"), 4);
  EXPECT_EQ(amdgpu::pcie_generation("64.0 GT/s PCIe"), 6);
  EXPECT_EQ(amdgpu::pcie_generation("Unknown"), std::nullopt);
  EXPECT_EQ(amdgpu::pcie_generation(""), std::nullopt);
}

TEST(AmdgpuFiles, HighestClock) {
  EXPECT_EQ(amdgpu::highest_clock_mhz("0: 500Mhz\n1: 800Mhz *\n2: 1700Mhz\n"), 1700);
  EXPECT_EQ(amdgpu::highest_clock_mhz("S: 19Mhz *\n0: 500Mhz\n1: 2526Mhz\n"), 2526);
  EXPECT_EQ(amdgpu::highest_clock_mhz("Mhz: 4\n: Mhz\n"), std::nullopt);
}

TEST(AmdgpuFiles, GfxTargets) {
  EXPECT_EQ(amdgpu::gfx_target(90'010), "gfx90a");
  EXPECT_EQ(amdgpu::gfx_target(90'402), "gfx942");
  EXPECT_EQ(amdgpu::gfx_target(100'300), "gfx1030");
  EXPECT_EQ(amdgpu::gfx_target(120'001), "gfx1201");
  EXPECT_EQ(amdgpu::gfx_target(0), "");
}

TEST(AmdgpuFiles, NamesAreByDeviceAndRevision) {
  const std::string list = "1.0.0\n744C,\tC8,\tAMD Radeon RX 7900 XTX\n744C,\tCC,\tAMD Radeon RX 7900 XT\n";
  EXPECT_EQ(amdgpu::find_in_amdgpu_ids(list, 0x744c, 0xcc), "AMD Radeon RX 7900 XT");
  EXPECT_EQ(amdgpu::find_in_amdgpu_ids(list, 0x744c, 0x00), std::nullopt);
}

}  // namespace
}  // namespace yoke::device

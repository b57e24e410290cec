#include "yoke/device/detail/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakes/sysfs/fixture_tree.h"
#include "yoke/device/cpu/detail/files.h"

namespace yoke::device {
namespace {

using fakes::FixtureTree;

constexpr int64_t kCpuGib = int64_t{1} << 30;

Device read(Backend& backend, const Want& want = Want::everything()) {
  Device device;
  backend.read(0, want, device, [](const Device&) {});
  return device;
}

TEST(CpuBackend, TheMachineIsOneDevice) {
  const auto backend = make_cpu_backend(YOKE_FAKE_SYSFS "/lumi-g");
  EXPECT_TRUE(backend->open().is_available);
  EXPECT_EQ(backend->num_devices(), 1);
  const auto device = read(*backend);
  EXPECT_EQ(device.facts.name, "AMD EPYC 7A53 64-Core Processor");
  EXPECT_EQ(device.facts.num_packages, 1);
  EXPECT_EQ(device.facts.num_numa_nodes, 4);
  EXPECT_EQ(device.facts.num_cores, 64);
  EXPECT_EQ(device.facts.num_cpus, 128);
  EXPECT_EQ(device.facts.num_allowed_cpus, 128);
  EXPECT_EQ(device.facts.cpu_affinity, "0-127");
  EXPECT_EQ(device.readings.memory_total_bytes, 512 * kCpuGib);
  EXPECT_EQ(device.readings.memory_used_bytes, 128 * kCpuGib);
  EXPECT_EQ(device.readings.memory_free_bytes, 384 * kCpuGib);
  EXPECT_EQ(device.readings.temperature_celsius, std::nullopt);
  EXPECT_EQ(device.state, State::kFree);
}

TEST(CpuBackend, CoresAreCountedOnlyWhenAskedFor) {
  const auto backend = make_cpu_backend(YOKE_FAKE_SYSFS "/lumi-g");
  EXPECT_EQ(read(*backend, {}).facts.num_cores, std::nullopt);
  EXPECT_EQ(read(*backend).facts.num_cores, 64);
}

TEST(CpuBackend, AffinityAndQuotaLimitWhatIsAllowed) {
  const FixtureTree tree;
  tree.write("sys/devices/system/cpu/online", "0-15\n");
  tree.write("proc/self/status", "Name:\tyoke\nCpus_allowed:\tff0f\nCpus_allowed_list:\t0-3,8-15\n");
  const auto backend = make_cpu_backend(tree.path());
  EXPECT_EQ(read(*backend).facts.num_cpus, 16);
  EXPECT_EQ(read(*backend).facts.num_allowed_cpus, 12);
  EXPECT_EQ(read(*backend).facts.cpu_affinity, "0-3,8-15");
  tree.write("proc/self/cgroup", "0::/job\n");
  tree.write("sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  EXPECT_EQ(read(*backend).facts.num_allowed_cpus, 2);
  tree.write("sys/fs/cgroup/job/cpu.max", "10000 100000\n");
  EXPECT_EQ(read(*backend).facts.num_allowed_cpus, 1);
}

TEST(CpuBackend, ALowerMemoryLimitIsTheMemory) {
  const FixtureTree tree;
  tree.write("proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 6291456 kB\n");
  tree.write("proc/self/cgroup", "0::/job\n");
  tree.write("sys/fs/cgroup/job/memory.max", "2147483648\n");
  tree.write("sys/fs/cgroup/job/memory.current", "1610612736\n");
  tree.write("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 536870912\n");
  const auto backend = make_cpu_backend(tree.path());
  EXPECT_EQ(read(*backend).readings.memory_total_bytes, 2 * kCpuGib);
  EXPECT_EQ(read(*backend).readings.memory_used_bytes, kCpuGib);
  tree.write("sys/fs/cgroup/job/memory.max", "109951162777600\n");  // more memory than the machine has
  EXPECT_EQ(read(*backend).readings.memory_total_bytes, 8 * kCpuGib);
}

TEST(CpuBackend, UtilisationIsThatSinceTheLastSample) {
  const FixtureTree tree;
  tree.write("proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1 1 1\n");
  const auto backend = make_cpu_backend(tree.path());
  EXPECT_EQ(read(*backend).readings.utilization_percent, std::nullopt);
  tree.write("proc/stat", "cpu  160 10 105 915 5 5 0 0 60 0\ncpu0 1 1 1 1\n");
  EXPECT_EQ(read(*backend).readings.utilization_percent, 40);  // 80 of 200 ticks; guest time is part of user time
  EXPECT_EQ(read(*backend).readings.utilization_percent, std::nullopt);  // no tick has passed since the last sample
}

TEST(CpuBackend, BusyWhenHalfOfTheAllowedWork) {
  const FixtureTree tree;
  tree.write("proc/self/status", "Cpus_allowed_list:\t0-7\n");
  tree.write("proc/loadavg", "3.99 1.00 1.00 1/200 7\n");
  const auto backend = make_cpu_backend(tree.path());
  EXPECT_EQ(read(*backend).state, State::kFree);
  tree.write("proc/loadavg", "4.00 1.00 1.00 1/200 7\n");
  EXPECT_EQ(read(*backend).state, State::kBusy);
}

TEST(CpuBackend, TemperatureOfTheHottestPackage) {
  const FixtureTree tree;
  tree.write("sys/class/hwmon/hwmon0/name", "nvme\n");
  tree.write("sys/class/hwmon/hwmon0/temp1_input", "99000\n");
  tree.write("sys/class/hwmon/hwmon1/name", "coretemp\n");
  tree.write("sys/class/hwmon/hwmon1/temp1_input", "51000\n");
  tree.write("sys/class/hwmon/hwmon2/name", "coretemp\n");
  tree.write("sys/class/hwmon/hwmon2/temp1_input", "64000\n");
  EXPECT_EQ(read(*make_cpu_backend(tree.path())).readings.temperature_celsius, 64);
}

TEST(CpuBackend, PowerIsTheEnergySinceTheLastSample) {
  const FixtureTree tree;
  const std::string zone = "sys/class/powercap/intel-rapl:";
  tree.write(zone + "0/name", "package-0\n");
  tree.write(zone + "0/energy_uj", "1000000\n");
  tree.write(zone + "0/max_energy_range_uj", "262143328850\n");
  tree.write(zone + "0:0/name", "core\n");  // a part of package 0, which must not be counted twice
  tree.write(zone + "0:0/energy_uj", "5\n");
  const auto backend = make_cpu_backend(tree.path());
  EXPECT_EQ(read(*backend).readings.power_mw, std::nullopt);
  tree.write(zone + "0/energy_uj", "2000000\n");
  EXPECT_GT(read(*backend).readings.power_mw.value(), 0);
  tree.write(zone + "0/energy_uj", "7\n");  // the counter has wrapped around
  EXPECT_GT(read(*backend).readings.power_mw.value(), 0);
  tree.remove(zone + "0/energy_uj");  // on most systems only root may read the file
  EXPECT_EQ(read(*backend).readings.power_mw, std::nullopt);
}

TEST(CpuBackend, AnEmptyMachineIsNoCrash) {
  const FixtureTree tree;
  const auto device = read(*make_cpu_backend(tree.path()));
  EXPECT_EQ(device.facts.name, "CPU");
  EXPECT_EQ(device.facts.num_numa_nodes, 1);
  EXPECT_EQ(device.facts.num_allowed_cpus, 1);
  EXPECT_EQ(device.readings, Readings());
}

TEST(CpuBackend, ThisMachine) {
  const auto device = read(*make_cpu_backend());
  EXPECT_GE(device.facts.num_allowed_cpus.value(), 1);
  EXPECT_GE(device.facts.num_cpus.value(), device.facts.num_allowed_cpus.value());
  EXPECT_GT(device.readings.memory_total_bytes.value(), 0);
}

TEST(CpuFiles, Names) {
  EXPECT_EQ(cpu_name("processor\t: 0\nmodel name\t: Intel(R) Xeon(R)\n"), "Intel(R) Xeon(R)");
  EXPECT_EQ(cpu_name("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n"), "POWER9, altivec supported");
  EXPECT_EQ(cpu_name("processor\t: 0\nCPU implementer\t: 0x41\n"), "CPU");
  EXPECT_EQ(cpu_name("model name\t: AMD EPYC 7A53 64-Core Processor                \n"),
            "AMD EPYC 7A53 64-Core Processor");
  EXPECT_EQ(cpu_name("model name\t: "), "CPU");
}

TEST(CpuFiles, WhatIsNotWholeIsNothing) {
  EXPECT_EQ(parse_cpu_time("cpu  1 2 3\n"), std::nullopt);
  EXPECT_EQ(parse_cpu_time("cpu0 1 2 3 4 5 6 7 8\n"), std::nullopt);
  EXPECT_EQ(parse_cpu_time("cpu  1 2 3 4 5 6 7 8\n"), (CpuTime{27, 36}));
  EXPECT_EQ(parse_load("x"), std::nullopt);
  EXPECT_EQ(parse_load(""), std::nullopt);
  EXPECT_EQ(parse_load("0.50 0.4"), 0.5);
}

}  // namespace
}  // namespace yoke::device

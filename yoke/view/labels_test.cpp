#include "yoke/view/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::view {
namespace {

using device::Device;
using device::Vendor;
using testing::ElementsAre;

Device named(const std::string& name, Vendor vendor = Vendor::kNvidia) {
  return {.vendor = vendor, .facts = {.name = name}};
}

device::DeviceProcess process_of(const std::string& user, int64_t memory_bytes) {
  device::DeviceProcess process{.pid = 1, .memory_bytes = memory_bytes};
  process.info.user = user;
  return process;
}

TEST(Labels, NamesTellDevicesApart) {
  EXPECT_EQ(full_name(named("NVIDIA A100-SXM4-80GB")), "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(short_name(named("NVIDIA A100-SXM4-80GB")), "A100-SXM4-80GB");
  EXPECT_EQ(short_name(named("NVIDIA Tesla V100")), "V100");
  auto instance = named("NVIDIA A100-SXM4-40GB MIG 3g.20gb");
  instance.facts.gpu_instance = 2;
  EXPECT_EQ(full_name(instance), "MIG 3g.20gb");
  EXPECT_EQ(short_name(instance), "3g.20gb");
  EXPECT_EQ(full_name(named("", Vendor::kAmd)), "AMD GPU");
  EXPECT_EQ(short_name(named("", Vendor::kAmd)), "GPU");
  EXPECT_EQ(short_name(named("", Vendor::kCpu)), "CPU");
}

TEST(Labels, NumbersAreRoundedAndUnknownOnesAreMarked) {
  EXPECT_EQ(percent_text(97), "97%");
  EXPECT_EQ(percent_text(std::nullopt), kUnknown);
  EXPECT_EQ(to_watts(311'500), 312);
  EXPECT_DOUBLE_EQ(to_gib(int64_t{3} << 29), 1.5);
}

TEST(Labels, UsersAreOrderedByTheMemoryOfAllTheirProcesses) {
  Device device;
  device.processes = {process_of("ada", 5), process_of("grace", 4), process_of("", 1)};
  device.instances.emplace_back().processes = {process_of("grace", 2)};
  EXPECT_THAT(users_of(device), ElementsAre("grace", "ada", "?"));
}

TEST(Labels, AgesAreNeverNegative) {
  const std::chrono::system_clock::time_point now{std::chrono::hours(1)};
  EXPECT_FALSE(age_of({}, now));
  EXPECT_EQ(age_of({.started_at = now - std::chrono::seconds(7)}, now), std::chrono::seconds(7));
  EXPECT_EQ(age_of({.started_at = now + std::chrono::seconds(7)}, now), std::chrono::seconds(0)) << "a clock was set";
}

TEST(Labels, AMissingGpuHasTheReasonsOfAllBackends) {
  device::Snapshot snapshot;
  snapshot.devices = {named("", Vendor::kCpu)};
  ASSERT_TRUE(find_missing_gpu(snapshot));
  EXPECT_EQ(find_missing_gpu(snapshot)->text(), "no GPU");
  snapshot.backends = {{.backend = "nvml", .reason = "no NVIDIA driver"}, {.backend = "amdgpu", .reason = "no module"}};
  EXPECT_EQ(find_missing_gpu(snapshot)->text(), "no GPU: no NVIDIA driver; no module");
  snapshot.backends[1].has_answered = false;
  EXPECT_EQ(find_missing_gpu(snapshot)->text(), "no GPU is known: no NVIDIA driver; no module");
  snapshot.devices.push_back(named("", Vendor::kAmd));
  EXPECT_FALSE(find_missing_gpu(snapshot));
}

}  // namespace
}  // namespace yoke::view

#include "yoke/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::device {
namespace {

using testing::HasSubstr;

constexpr int64_t kGib = int64_t{1} << 30;

Snapshot machine() {
  Snapshot snapshot;
  for (const char* uuid : {"GPU-aaaa-1", "GPU-aaab-2", ""}) {
    auto& device = snapshot.devices.emplace_back();
    device.index = static_cast<int64_t>(snapshot.devices.size()) - 1;
    device.vendor = *uuid == '\0' ? Vendor::kCpu : Vendor::kNvidia;
    device.facts.uuid = uuid;
  }
  snapshot.devices[1].facts.pci_bus_id = "0000:c1:00.0";
  snapshot.devices[1].instances = {Device{.index = 0}, Device{.index = 1}};
  snapshot.devices[1].instances[1].facts.uuid = "MIG-77";
  return snapshot;
}

TEST(FindDevice, ByEveryName) {
  const auto snapshot = machine();
  const auto& second = snapshot.devices[1];
  for (const char* id : {"1", "GPU-aaab-2", "GPU-aaab", "0000:c1:00.0", "00000000:C1:00.0", "c1:00.0"}) {
    EXPECT_EQ(&find_device(snapshot, id), &second) << id;
  }
  EXPECT_EQ(&find_device(snapshot, "1:1"), &second.instances[1]);
  EXPECT_EQ(&find_device(snapshot, "MIG-7"), &second.instances[1]);
  EXPECT_EQ(&find_device(snapshot, "cpu"), &snapshot.devices[2]);
}

TEST(FindDevice, SaysWhatThereIs) {
  const auto message = [](std::string_view id) {
    try {
      find_device(machine(), id);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("found");
  };
  EXPECT_EQ(message("9"), "there is no device `9` here; there are: 0, 1, 1:0, 1:1, cpu");
  EXPECT_THAT(message("GPU-aaa"), HasSubstr("2 devices"));
  EXPECT_THAT(message("GPU-"), HasSubstr("no device")) << "a prefix of everything names nothing";
  EXPECT_THAT(message(""), HasSubstr("no device"));
}

TEST(StateByUse, IsBusyWhenSomebodyComputesOrHoldsMemory) {
  Device device{.vendor = Vendor::kNvidia};
  EXPECT_EQ(state_by_use(device), State::kFree);
  device.readings.memory_used_bytes = 300 << 20;
  EXPECT_EQ(state_by_use(device), State::kFree) << "what the driver holds, without saying so in version 1";
  device.processes = {{.pid = 1, .type = "graphics", .memory_bytes = 4 * kGib}};
  device.readings.memory_used_bytes = 4 * kGib + (300 << 20);
  EXPECT_EQ(state_by_use(device), State::kFree) << "a desktop";
  device.readings.memory_used_bytes = 6 * kGib;
  EXPECT_EQ(state_by_use(device), State::kBusy) << "2 GiB that nobody accounts for";
  device.readings.memory_used_bytes.reset();
  EXPECT_EQ(state_by_use(device), State::kFree);
  device.processes[0].type = "compute+graphics";
  EXPECT_EQ(state_by_use(device), State::kBusy);
  Device parent;
  parent.instances = {Device{.state = State::kFree}, Device{.state = State::kBusy}};
  EXPECT_EQ(state_by_use(parent), State::kBusy);
}

}  // namespace
}  // namespace yoke::device

#include "yoke/device/device.h"

#include <gtest/gtest.h>

namespace yoke::device {
namespace {

constexpr int64_t kBytesInGib = int64_t{1} << 30;

TEST(StateByUse, IsBusyWhenSomebodyComputesOrHoldsMemory) {
  Device device{.vendor = Vendor::kNvidia};
  EXPECT_EQ(state_by_use(device), State::kFree);
  device.readings.memory_used_bytes = 300 << 20;
  EXPECT_EQ(state_by_use(device), State::kFree) << "what the driver holds, without saying so in version 1";
  device.processes = {{.pid = 1, .type = "graphics", .memory_bytes = 4 * kBytesInGib}};
  device.readings.memory_used_bytes = 4 * kBytesInGib + (300 << 20);
  EXPECT_EQ(state_by_use(device), State::kFree) << "a desktop";
  device.readings.memory_used_bytes = 6 * kBytesInGib;
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

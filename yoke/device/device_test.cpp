#include "yoke/device/device.h"

#include <gtest/gtest.h>

namespace yoke::device {
namespace {

constexpr int64_t kBytesInGib = int64_t{1} << 30;

State state_of(Device device, const Want& want = {}) {
  set_state_by_use(device, want);
  EXPECT_EQ(device.reason.empty(), device.state == State::kFree || device.state == State::kBusy) << device.reason;
  return device.state;
}

TEST(StateByUse, IsBusyWhenSomebodyComputesOrHoldsMemory) {
  Device device{.vendor = Vendor::kNvidia, .has_process_list = true};
  EXPECT_EQ(state_of(device), State::kFree);
  device.readings.memory_used_bytes = 300 << 20;
  EXPECT_EQ(state_of(device), State::kFree) << "what the driver holds, without saying so in version 1";
  device.processes = {{.pid = 1, .type = "graphics", .memory_bytes = 4 * kBytesInGib}};
  device.readings.memory_used_bytes = 4 * kBytesInGib + (300 << 20);
  EXPECT_EQ(state_of(device), State::kFree) << "a desktop";
  device.readings.memory_used_bytes = 6 * kBytesInGib;
  EXPECT_EQ(state_of(device), State::kBusy) << "2 GiB that nobody accounts for";
  device.readings.unified_memory = true;
  EXPECT_EQ(state_of(device), State::kFree) << "the rest of the machine uses this memory, too";
  device.readings.unified_memory.reset();
  device.readings.memory_used_bytes.reset();
  EXPECT_EQ(state_of(device), State::kFree);
  device.processes[0].type = "compute+graphics";
  EXPECT_EQ(state_of(device), State::kBusy);
  Device parent;
  parent.instances = {Device{.state = State::kFree}, Device{.state = State::kBusy}};
  EXPECT_EQ(state_of(parent), State::kBusy);
  parent.instances[1].state = State::kUnknown;
  EXPECT_EQ(state_of(parent), State::kUnknown);
  parent.instances.pop_back();
  parent.process_list_error = "no permission";  // the list of all instances is for administrators
  EXPECT_EQ(state_of(parent), State::kFree);
}

TEST(StateByUse, AListThatFailedIsUnknownAndNeverFree) {
  Device device{.vendor = Vendor::kNvidia};
  device.readings.memory_used_bytes = 300 << 20;
  EXPECT_EQ(state_of(device), State::kFree) << "a driver without lists tells by its memory";
  device.process_list_error = "no permission";
  EXPECT_EQ(state_of(device), State::kUnknown);
  EXPECT_EQ(state_of(device, {.processes = false}), State::kFree) << "nobody asked for the list";
  device.processes = {{.pid = 1, .type = "graphics"}};
  EXPECT_EQ(state_of(device), State::kUnknown) << "there may be more than those of the list that did not fail";
  device.processes.push_back({.pid = 2, .type = "compute"});
  EXPECT_EQ(state_of(device), State::kBusy);
  Device silent{.vendor = Vendor::kNvidia};
  EXPECT_EQ(state_of(silent), State::kUnknown) << "neither processes nor memory are known";
  silent.readings.memory_used_bytes = 0;
  silent.readings.unified_memory = true;
  EXPECT_EQ(state_of(silent), State::kUnknown);
}

TEST(StateByUse, WhatNoProgramCanUseIsNotFree) {
  Device device{.vendor = Vendor::kNvidia, .has_process_list = true};
  device.readings.compute_mode = "prohibited";
  EXPECT_EQ(state_of(device), State::kUnusable);
  device.readings.compute_mode = "exclusive_process";
  EXPECT_EQ(state_of(device), State::kFree);
  device.readings.mig_enabled = true;
  EXPECT_EQ(state_of(device), State::kUnusable) << "MIG without an instance";
  device.instances = {Device{.state = State::kFree}};
  EXPECT_EQ(state_of(device), State::kFree);
}

TEST(Readings, ThatNoDeviceCanHaveAreNotKnown) {
  Device device{.vendor = Vendor::kNvidia};
  constexpr int64_t kNone = 0xFFFFFFFF;
  device.readings = {.memory_total_bytes = 0,
                     .utilization_percent = 655,
                     .temperature_celsius = 255,
                     .fan_percent = 250,
                     .power_mw = kNone,
                     .power_limit_mw = 0,
                     .energy_mj = -1,
                     .clock_sm_mhz = kNone,
                     .ecc_uncorrected_volatile = -1};
  device.processes = {{.pid = 1, .type = "compute", .memory_bytes = -1, .utilization_percent = 37'100}};
  remove_implausible(device);
  EXPECT_EQ(device.readings, Readings());
  EXPECT_EQ(device.processes[0].memory_bytes, std::nullopt);
  EXPECT_EQ(device.processes[0].utilization_percent, std::nullopt);

  device.readings = {.memory_total_bytes = 425 << 20,
                     .memory_free_bytes = -(73 << 20),
                     .memory_used_bytes = 498 << 20,
                     .utilization_percent = 100,
                     .temperature_celsius = -3};
  remove_implausible(device);
  EXPECT_EQ(device.readings.memory_free_bytes, 0) << "used exceeds total with some integrated GPUs";
  EXPECT_EQ(device.readings.memory_used_bytes, 498 << 20);
  EXPECT_EQ(device.readings.utilization_percent, 100);
  EXPECT_EQ(device.readings.temperature_celsius, -3);
}

}  // namespace
}  // namespace yoke::device

#include "yoke/device/uses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace yoke::device {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// A GPU with three processes, and a GPU with one process, which is on a MIG instance.
Snapshot two_gpus_in_use() {
  Device whole{.index = 0, .vendor = Vendor::kNvidia};
  whole.processes = {{.pid = 10}, {.pid = 11, .memory_bytes = 1 << 20}, {.pid = 12, .memory_bytes = 5 << 20}};
  Device split{.index = 1, .vendor = Vendor::kNvidia};
  split.instances.push_back({.index = 0, .facts = {.uuid = "MIG-1"}});
  split.instances[0].processes = {{.pid = 13, .memory_bytes = 2 << 20}};
  return {.devices = {whole, split}};
}

std::vector<int64_t> pids_of(const std::vector<DeviceUse>& uses) {
  std::vector<int64_t> pids(uses.size());
  std::transform(uses.begin(), uses.end(), pids.begin(), [](const DeviceUse& use) { return use.process.pid; });
  return pids;
}

TEST(Uses, AreOrderedByDeviceThenMemory) {
  const auto uses = uses_of(two_gpus_in_use());
  EXPECT_THAT(pids_of(uses), ElementsAre(12, 11, 10, 13));
  EXPECT_EQ(uses[3].device_id, "1:0");
  EXPECT_EQ(uses[3].device_uuid, "MIG-1");
  EXPECT_THAT(pids_of(uses_of(two_gpus_in_use(), DeviceSelection::parse({"1"}))), ElementsAre(13));
  EXPECT_THAT(pids_of(uses_of(two_gpus_in_use(), DeviceSelection::parse({"1:0", "0"}))), ElementsAre(12, 11, 10, 13))
      << "in the order of devices";
}

/// Device 0 is idle. Device 1 does not answer. Device 2 is in MIG mode (2:0 lists its processes, 2:1 does not). Device
/// 3 answers without a process list.
Snapshot machine() {
  Snapshot snapshot;
  snapshot.backends = {{.backend = "nvml", .is_available = true}, {.backend = "amdgpu", .reason = "no AMD GPU"}};
  for (int64_t i = 0; i < 4; ++i) snapshot.devices.push_back({.index = i, .vendor = Vendor::kNvidia});
  snapshot.devices[0].has_process_list = true;
  snapshot.devices[1].state = State::kNoAnswer;
  snapshot.devices[1].reason = "the driver has not answered for 1.0 s";
  snapshot.devices[2].instances = {{.index = 0, .vendor = Vendor::kNvidia, .has_process_list = true},
                                   {.index = 1, .vendor = Vendor::kNvidia}};
  snapshot.devices.push_back({.index = 4, .vendor = Vendor::kCpu});
  return snapshot;
}

std::vector<std::string> whats(const std::vector<std::string>& words, const Snapshot& snapshot = machine()) {
  std::vector<std::string> result;
  for (const auto& one : unanswered_of(snapshot, DeviceSelection::parse(words))) result.push_back(one.what());
  return result;
}

TEST(Unanswered, AreThoseOfWhichNobodyTellsTheProcesses) {
  EXPECT_THAT(whats({}), ElementsAre("device 1", "device 2:1", "device 3"));
  EXPECT_THAT(whats({"0", "2:0", "cpu"}), IsEmpty());
  EXPECT_THAT(whats({"2"}), ElementsAre("device 2:1"));
  EXPECT_THAT(whats({"1,3"}), ElementsAre("device 1", "device 3"));
  const auto first = unanswered_of(machine()).front();
  EXPECT_EQ(first.state, "no answer");
  EXPECT_EQ(first.reason, "the driver has not answered for 1.0 s");
}

TEST(Unanswered, SomebodyOnADeviceIsAnAnswer) {
  auto snapshot = machine();
  snapshot.devices[3].processes = {{.pid = 7}};
  EXPECT_THAT(whats({"3"}, snapshot), IsEmpty());
}

TEST(Unanswered, ADriverThatHasNotAnsweredMayHaveAnyDevice) {
  auto snapshot = machine();
  snapshot.backends[1].has_answered = false;
  EXPECT_THAT(whats({"0", "cpu"}, snapshot), ElementsAre("the driver (amdgpu)"));
  EXPECT_THAT(whats({"nvidia:0", "cpu"}, snapshot), IsEmpty());
}

TEST(Unanswered, TheFirstBackendThatHasNotAnsweredIsFound) {
  auto snapshot = machine();
  EXPECT_EQ(find_silent_backend(snapshot), nullptr);
  snapshot.backends[1].has_answered = false;
  ASSERT_NE(find_silent_backend(snapshot), nullptr);
  EXPECT_EQ(find_silent_backend(snapshot)->backend, "amdgpu");
}

}  // namespace
}  // namespace yoke::device

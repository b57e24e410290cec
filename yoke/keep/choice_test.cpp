#include "yoke/keep/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

namespace yoke::keep {
namespace {

using device::Vendor;
using testing::ElementsAre;
using testing::IsEmpty;

device::Device gpu(int64_t index, std::vector<device::DeviceProcess> processes = {}) {
  device::Device device{.index = index, .vendor = Vendor::kNvidia};
  device.facts.uuid = "GPU-" + std::to_string(index);
  device.has_process_list = true;
  device.processes = std::move(processes);
  return device;
}

device::DeviceProcess process(int64_t pid, int64_t uid, const char* type = "compute") {
  device::DeviceProcess result{.pid = pid, .type = type};
  result.info.uid = uid;
  result.info.user = "u" + std::to_string(uid);
  return result;
}

/// GPU 0, GPU 1 with two MIG instances, and the CPU.
device::Snapshot with_instances() {
  device::Snapshot snapshot;
  snapshot.devices = {gpu(0), gpu(1), {.index = 0, .vendor = Vendor::kCpu}};
  snapshot.devices[1].instances = {gpu(0), gpu(1)};
  for (auto& one : snapshot.devices[1].instances) one.facts.uuid = "MIG-" + std::to_string(one.index);
  return snapshot;
}

TEST(KeepChoice, WordsNameTheDevicesThatMayBeGiven) {
  struct Row {
    std::vector<std::string> words;
    std::vector<std::string> only;
  };
  const Row rows[] = {{{}, {}},
                      {{"0"}, {"0"}},
                      {{"0", "0"}, {"0"}},
                      {{"1"}, {"1:0", "1:1"}},
                      {{"1:1,0"}, {"1:1", "0"}},
                      {{"all"}, {"0", "1:0", "1:1"}}};
  for (const auto& row : rows) {
    claim::AllocationRequest request{.wish = {.num_devices = 0}, .only = {"9"}};
    choose_named(with_instances(), row.words, request);
    EXPECT_EQ(request.only, row.only);
    EXPECT_EQ(request.wish.num_devices, static_cast<int64_t>(row.only.size()));
    request.wish.num_devices = 1;
    choose_named(with_instances(), row.words, request);
    EXPECT_EQ(request.wish.num_devices, 1) << "one of those";
  }
  claim::AllocationRequest request;
  EXPECT_EQ(test::error_of([&] { choose_named(with_instances(), {"5"}, request); }).code(), ErrorCode::kNotFound);
}

TEST(KeepChoice, AProcessIsAdoptedWithAllItsDevices) {
  device::Snapshot snapshot;
  snapshot.devices = {gpu(0, {process(41, 7)}), gpu(1), gpu(2, {process(41, 7), process(5, 0, "graphics")}),
                      gpu(3, {process(42, 7), process(43, 8)})};
  claim::AllocationRequest request;
  choose_used(snapshot, 41, request);
  EXPECT_THAT(request.only, ElementsAre("0", "2"));
  EXPECT_EQ(request.wish.num_devices, 2);
  EXPECT_EQ(test::message_of([&] { choose_used(snapshot, 42, request); }, ErrorCode::kFailedPrecondition),
            "device 3 is also used by u8 (pid 43), so it cannot be claimed for process 42");
  EXPECT_EQ(test::message_of([&] { choose_used(snapshot, 99, request); }, ErrorCode::kNotFound),
            "process 99 computes on no device; `yoke ps` lists those that do");
}

TEST(KeepChoice, WaitsForTheLocksOfDevicesThatCanBeGiven) {
  device::Snapshot snapshot;
  snapshot.devices = {gpu(0), gpu(1, {process(41, 7)}), gpu(2)};
  snapshot.devices[2].state = device::State::kLost;
  EXPECT_THAT(keys_of(snapshot, {}), ElementsAre("GPU-0", "GPU-1"));
  EXPECT_THAT(keys_of(snapshot, {.only = {"1"}}), ElementsAre("GPU-1"));
  EXPECT_THAT(keys_of(snapshot, {.only = {"2"}}), IsEmpty());
}

}  // namespace
}  // namespace yoke::keep

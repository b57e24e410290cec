#include "yoke/device/visibility/set.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/device/visibility/visibility.h"

namespace yoke::device {
namespace {

using testing::HasSubstr;
using Assignments = std::vector<Assignment>;

constexpr auto kUnset = std::nullopt;

Device gpu(Vendor vendor, std::string uuid) {
  Device device;
  device.vendor = vendor;
  device.facts.uuid = std::move(uuid);
  device.facts.name = "one model";
  return device;
}

Snapshot machine_with(std::vector<Device> devices, const std::string& driver = "535.1") {
  Snapshot snapshot;
  snapshot.backends.push_back({"nvml", true, true, "", driver, ""});
  snapshot.devices = std::move(devices);
  snapshot.devices.emplace_back();  // the CPU
  for (size_t i = 0; i < snapshot.devices.size(); ++i) {
    snapshot.devices[i].index = static_cast<int64_t>(i);
    snapshot.devices[i].facts.vendor_index = static_cast<int64_t>(i);
  }
  return snapshot;
}

Snapshot four() {
  return machine_with({gpu(Vendor::kNvidia, "GPU-aa00"), gpu(Vendor::kNvidia, "GPU-bb11"),
                       gpu(Vendor::kNvidia, "GPU-cc22"), gpu(Vendor::kNvidia, "GPU-cd33")});
}

Snapshot amd() {
  return machine_with(
      {gpu(Vendor::kAmd, "GPU-00aa000000000001"), gpu(Vendor::kAmd, "GPU-00ab000000000002"), gpu(Vendor::kAmd, "")});
}

Snapshot both() {
  return machine_with({gpu(Vendor::kNvidia, "GPU-aa00"), gpu(Vendor::kNvidia, "GPU-bb11"),
                       gpu(Vendor::kAmd, "GPU-00aa000000000001"), gpu(Vendor::kAmd, "GPU-00ab000000000002")});
}

Snapshot with_mig(const std::string& driver) {
  auto snapshot = machine_with({gpu(Vendor::kNvidia, "GPU-aa00"), gpu(Vendor::kNvidia, "GPU-bb11")}, driver);
  for (const auto* uuid : {"MIG-1010", "MIG-1111"}) {
    auto instance = gpu(Vendor::kNvidia, uuid);
    auto& instances = snapshot.devices[1].instances;
    instance.index = static_cast<int64_t>(instances.size());
    instance.facts.gpu_instance = instance.index + 1;
    instance.facts.compute_instance = 0;
    instances.push_back(std::move(instance));
  }
  return snapshot;
}

Assignments by_uuid(std::string_view selection, const Snapshot& snapshot, const Environment& environment = {}) {
  return assignments_for(selection, IdFormat::kUuid, environment, snapshot);
}

Assignments by_index(std::string_view selection, const Snapshot& snapshot, const Environment& environment = {}) {
  return assignments_for(selection, IdFormat::kIndex, environment, snapshot);
}

TEST(VisibilitySet, NamesNvidiaGpusByUuidOrByNumberInPciOrder) {
  EXPECT_EQ(by_uuid("2,0", four()), (Assignments{{"CUDA_VISIBLE_DEVICES", "GPU-cc22,GPU-aa00"}}));
  EXPECT_EQ(by_index("2,0", four()),
            (Assignments{{"CUDA_VISIBLE_DEVICES", "2,0"}, {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}}));
  EXPECT_EQ(by_uuid("GPU-bb, GPU-cd33", four()), (Assignments{{"CUDA_VISIBLE_DEVICES", "GPU-bb11,GPU-cd33"}}));
  EXPECT_EQ(by_uuid("1-2", four()), (Assignments{{"CUDA_VISIBLE_DEVICES", "GPU-bb11,GPU-cc22"}}));
  EXPECT_EQ(by_uuid("mig", with_mig("570.1")), (Assignments{{"CUDA_VISIBLE_DEVICES", "MIG-1010,MIG-1111"}}));
  EXPECT_EQ(by_uuid("1:1", with_mig("535.1")), (Assignments{{"CUDA_VISIBLE_DEVICES", "MIG-1111"}}));
  EXPECT_EQ(by_uuid("1:1,1:0", with_mig("570.1")), (Assignments{{"CUDA_VISIBLE_DEVICES", "MIG-1111,MIG-1010"}}));
}

TEST(VisibilitySet, NamesAmdGpusToRocrAndUnsetsWhatWouldFilterAgain) {
  const Environment environment{
      {"HIP_VISIBLE_DEVICES", "1"}, {"CUDA_VISIBLE_DEVICES", "0"}, {"GPU_DEVICE_ORDINAL", "0"}};
  EXPECT_EQ(by_uuid("1", amd(), environment), (Assignments{{"CUDA_VISIBLE_DEVICES", kUnset},
                                                           {"ROCR_VISIBLE_DEVICES", "GPU-00ab000000000002"},
                                                           {"GPU_DEVICE_ORDINAL", kUnset},
                                                           {"HIP_VISIBLE_DEVICES", kUnset}}));
  EXPECT_EQ(by_index("1", amd()), (Assignments{{"ROCR_VISIBLE_DEVICES", "1"}}));
  EXPECT_EQ(by_uuid("2,0", amd()), (Assignments{{"ROCR_VISIBLE_DEVICES", "2,0"}})) << "one has no UUID";
  auto partitions = amd();
  partitions.devices[1].facts.uuid = partitions.devices[0].facts.uuid;
  EXPECT_EQ(by_uuid("1", partitions), (Assignments{{"ROCR_VISIBLE_DEVICES", "1"}})) << "the UUID is of two";
}

TEST(VisibilitySet, HidesTheVendorThatIsNotNamed) {
  EXPECT_EQ(by_uuid("1", both()), (Assignments{{"CUDA_VISIBLE_DEVICES", "GPU-bb11"}, {"ROCR_VISIBLE_DEVICES", ""}}));
  EXPECT_EQ(by_uuid("amd:1", both()), by_uuid("3", both()));
  EXPECT_EQ(by_uuid("3", both()),
            (Assignments{{"CUDA_VISIBLE_DEVICES", ""}, {"ROCR_VISIBLE_DEVICES", "GPU-00ab000000000002"}}));
  EXPECT_EQ(by_index("3,1,2", both()), (Assignments{{"CUDA_VISIBLE_DEVICES", "1"},
                                                    {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
                                                    {"ROCR_VISIBLE_DEVICES", "1,0"},
                                                    {"HIP_VISIBLE_DEVICES", "0,1"}}));
}

TEST(VisibilitySet, AllAndNone) {
  const Environment environment{{"CUDA_VISIBLE_DEVICES", "1"}, {"ROCR_VISIBLE_DEVICES", "1"}};
  EXPECT_EQ(by_uuid("all", four(), environment), (Assignments{{"CUDA_VISIBLE_DEVICES", kUnset},
                                                              {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
                                                              {"ROCR_VISIBLE_DEVICES", kUnset}}));
  EXPECT_EQ(by_uuid("all", machine_with({})), Assignments{});
  EXPECT_EQ(by_uuid("none", machine_with({})),
            (Assignments{{"CUDA_VISIBLE_DEVICES", ""}, {"ROCR_VISIBLE_DEVICES", ""}}));
}

TEST(VisibilitySet, KeepsTheVariableOfContainersInAgreement) {
  const Environment environment{{"NVIDIA_VISIBLE_DEVICES", "3"}};
  EXPECT_EQ(by_uuid("1", four(), environment),
            (Assignments{{"CUDA_VISIBLE_DEVICES", "GPU-bb11"}, {"NVIDIA_VISIBLE_DEVICES", "GPU-bb11"}}));
  EXPECT_EQ(by_uuid("none", four(), environment).back(), (Assignment{"NVIDIA_VISIBLE_DEVICES", "none"}));
  EXPECT_EQ(by_uuid("all", four(), environment).back(), (Assignment{"NVIDIA_VISIBLE_DEVICES", "all"}));
}

void expect_refusal(const std::string& selection, const Snapshot& snapshot, ErrorCode code, const std::string& words,
                    IdFormat format = IdFormat::kUuid) {
  EXPECT_THAT(test::message_of([&] { assignments_for(selection, format, {}, snapshot); }, code), HasSubstr(words))
      << selection;
}

TEST(VisibilitySet, RefusesWhatCannotBe) {
  expect_refusal("0,7", four(), ErrorCode::kNotFound, "`7`");
  expect_refusal("GPU-ff", four(), ErrorCode::kNotFound, "GPU-ff");
  expect_refusal("GPU-c", four(), ErrorCode::kInvalidArgument, "2 devices");
  expect_refusal("0x1", four(), ErrorCode::kInvalidArgument, "`0x1`: write an index");
  expect_refusal("cpu", four(), ErrorCode::kInvalidArgument, "device cpu is not a GPU");
  expect_refusal("1,GPU-bb", four(), ErrorCode::kInvalidArgument, "device 1 is named twice");
  expect_refusal("1,,2", four(), ErrorCode::kInvalidArgument, "empty entry");
  expect_refusal("", four(), ErrorCode::kInvalidArgument, "none");
  expect_refusal("1", with_mig("535.1"), ErrorCode::kFailedPrecondition, "name one, as 1:0");
  expect_refusal("1:0,1:1", with_mig("535.1"), ErrorCode::kFailedPrecondition, "device 1:1 stays hidden");
  expect_refusal("0,1:0", with_mig("570.1"), ErrorCode::kFailedPrecondition, "device 1:0 stays hidden");
  expect_refusal("1:0", with_mig("570.1"), ErrorCode::kInvalidArgument, "1:0 has no number", IdFormat::kIndex);
  auto display_only = amd();
  display_only.devices[2].facts.vendor_index.reset();
  expect_refusal("2", display_only, ErrorCode::kFailedPrecondition, "device 2 is not listed by KFD");
  auto silent = four();
  silent.devices[1].facts = {};
  silent.devices[1].state = State::kNoAnswer;
  expect_refusal("1", silent, ErrorCode::kFailedPrecondition, "(no answer); use --format index");
}

TEST(VisibilitySet, WhatIsSetIsSeen) {
  for (const auto& snapshot : {four(), amd(), both()}) {
    for (const auto format : {IdFormat::kUuid, IdFormat::kIndex}) {
      const Environment before{{"CUDA_VISIBLE_DEVICES", "1,1"}, {"HIP_VISIBLE_DEVICES", "9"}};
      auto environment = before;
      assign(assignments_for("2,1", format, before, snapshot), environment);
      const auto result = visibility(environment, snapshot);
      std::vector<int64_t> seen;
      for (const auto& device : result.devices) {
        if (device.ordinal) seen.push_back(device.index);
      }
      EXPECT_THAT(seen, testing::UnorderedElementsAre(1, 2));
      EXPECT_THAT(result.warnings, testing::IsEmpty());
    }
  }
}

}  // namespace
}  // namespace yoke::device

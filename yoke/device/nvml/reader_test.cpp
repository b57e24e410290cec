#include "yoke/device/nvml/detail/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace yoke::device::nvml {
namespace {

constexpr uint32_t kNone = 0xFFFFFFFF;

/// Lays out entries as a driver does, `stride` bytes each.
std::vector<std::byte> entries(const std::vector<Process>& processes, size_t stride, uint64_t tail = 0) {
  std::vector<std::byte> buffer((processes.size() + 1) * 32);
  for (size_t i = 0; i < processes.size(); ++i) {
    std::memcpy(buffer.data() + i * stride, &processes[i], std::min(stride, sizeof(Process)));
    if (stride == 32) std::memcpy(buffer.data() + i * stride + 24, &tail, sizeof tail);
  }
  return buffer;
}

std::vector<uint32_t> pids(const std::vector<Process>& processes) {
  std::vector<uint32_t> result;
  for (const auto& process : processes) result.push_back(process.pid);
  return result;
}

const std::vector<Process> kThree = {{101, 5000, kNone, kNone}, {102, 6000, kNone, kNone}, {103, 7000, 1, 0}};

TEST(NvmlProcesses, AreReadInEachVersionsLayout) {
  const auto current = parse_processes(entries(kThree, 24), 3, ProcessForm::kV2);
  EXPECT_THAT(pids(current), testing::ElementsAre(101, 102, 103));
  EXPECT_EQ(current[2].memory, 7000U);
  EXPECT_EQ(current[2].gpu_instance, 1U);
  const auto old = parse_processes(entries(kThree, 16), 3, ProcessForm::kV1);
  EXPECT_THAT(pids(old), testing::ElementsAre(101, 102, 103));
  EXPECT_EQ(old[2].memory, 7000U);
  EXPECT_EQ(old[2].gpu_instance, kNone);
}

// With early 535 drivers only the first process was shown (gpustat #157, #161).
TEST(NvmlProcesses, LargerEntriesOfEarly535DriversAreRecognised) {
  for (const uint64_t tail : {uint64_t{0}, ~uint64_t{0}}) {
    const auto processes = parse_processes(entries(kThree, 32, tail), 3, ProcessForm::kV2);
    EXPECT_THAT(pids(processes), testing::ElementsAre(101, 102, 103));
    EXPECT_EQ(processes[1].memory, 6000U);
  }
}

// Drivers report such PIDs of processes in other virtual machines. Somebody uses the GPU, whoever it is.
TEST(NvmlProcesses, NumbersThatNoProcessHereHasAreKept) {
  const std::vector<Process> strange = {{0, 600 << 20, kNone, kNone}, {5'000'000, 600 << 20, kNone, kNone}};
  EXPECT_THAT(pids(parse_processes(entries(strange, 24), 2, ProcessForm::kV2)), testing::ElementsAre(0, 5'000'000));
  const std::vector<Process> mixed = {{101, 5000, kNone, kNone}, {0, 6000, kNone, kNone}, {103, 7000, kNone, kNone}};
  for (const size_t stride : {24, 32}) {
    EXPECT_THAT(pids(parse_processes(entries(mixed, stride), 3, ProcessForm::kV2)), testing::ElementsAre(101, 0, 103));
  }
  EXPECT_THAT(parse_processes(entries({}, 24), 0, ProcessForm::kV2), testing::IsEmpty());
}

int compute_status = kSuccess, graphics_status = kSuccess;
int list_of_one(int status, uint32_t* count, void* buffer) {
  *count = status == kSuccess ? 1 : 0;
  const Process process{101, 5000, kNone, kNone};
  if (status == kSuccess) std::memcpy(buffer, &process, sizeof process);
  return status;
}

TEST(NvmlProcesses, AListThatFailsLeavesThemUnknown) {
  Library library = {};
  library.compute_processes.function = [](Handle, uint32_t* count, void* buffer) {
    return list_of_one(compute_status, count, buffer);
  };
  library.graphics_processes.function = [](Handle, uint32_t* count, void* buffer) {
    return list_of_one(graphics_status, count, buffer);
  };
  const struct {
    int compute, graphics;
    bool is_whole, has_failed;
    size_t num_processes;
  } cases[] = {
      {kSuccess, kSuccess, true, false, 1},           {kSuccess, kNotSupported, true, false, 1},
      {kSuccess, kNoPermission, false, true, 1},      {kNoPermission, kSuccess, false, true, 1},
      {kUnknownError, kUnknownError, false, true, 0}, {kNotSupported, kNotSupported, false, false, 0},
  };
  for (const auto& one : cases) {
    compute_status = one.compute;
    graphics_status = one.graphics;
    Device device;
    Reader(library, nullptr).read_processes(device);
    EXPECT_EQ(device.has_process_list, one.is_whole) << one.compute << " " << one.graphics;
    EXPECT_EQ(!device.process_list_error.empty(), one.has_failed) << one.compute << " " << one.graphics;
    EXPECT_EQ(device.processes.size(), one.num_processes) << one.compute << " " << one.graphics;
  }
}

TEST(NvmlReader, WritesBusIdsAsSysfsDoes) {
  EXPECT_EQ(pci_bus_id({.domain = 0, .bus = 0xC1, .device = 0}), "0000:c1:00.0");
  EXPECT_EQ(pci_bus_id({.domain = 0x10001, .bus = 1, .device = 31}), "10001:01:1f.0");
}

}  // namespace
}  // namespace yoke::device::nvml

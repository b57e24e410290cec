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

TEST(NvmlProcesses, NumbersThatNoProcessHasAreDropped) {
  const std::vector<Process> bad = {{0, 1, kNone, kNone}, {kNone, 1, kNone, kNone}};
  EXPECT_THAT(parse_processes(entries(bad, 24), 2, ProcessForm::kV2), testing::IsEmpty());
  EXPECT_THAT(parse_processes(entries({}, 24), 0, ProcessForm::kV2), testing::IsEmpty());
}

TEST(NvmlReader, WritesBusIdsAsSysfsDoes) {
  EXPECT_EQ(pci_bus_id({.domain = 0, .bus = 0xC1, .device = 0}), "0000:c1:00.0");
  EXPECT_EQ(pci_bus_id({.domain = 0x10001, .bus = 1, .device = 31}), "10001:01:1f.0");
}

}  // namespace
}  // namespace yoke::device::nvml

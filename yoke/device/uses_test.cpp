#include "yoke/device/uses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace yoke::device {
namespace {

using testing::ElementsAre;

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

}  // namespace
}  // namespace yoke::device

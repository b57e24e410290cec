#include "yoke/claim/policy.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::claim {
namespace {

using device::Device;
using device::State;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kGiB = int64_t{1} << 30;

Device gpu(int64_t index) {
  Device device{.index = index, .vendor = device::Vendor::kNvidia};
  device.facts.uuid = fmt::format("GPU-{}", index);
  device.facts.pci_bus_id = fmt::format("0000:{:02x}:00.0", index + 1);
  device.readings.memory_total_bytes = 80 * kGiB;
  device.readings.memory_free_bytes = 80 * kGiB;
  device.readings.memory_used_bytes = 0;
  device.readings.temperature_celsius = 30;
  device.has_process_list = true;
  return device;
}

device::Snapshot machine(int64_t num_gpus) {
  device::Snapshot snapshot;
  for (int64_t i = 0; i < num_gpus; ++i) snapshot.devices.push_back(gpu(i));
  Device cpu{.index = num_gpus};
  snapshot.devices.push_back(cpu);
  return snapshot;
}

Closeness uniform(size_t size, int64_t value) {
  Closeness result(size, std::vector<int64_t>(size, value));
  for (size_t i = 0; i < size; ++i) result[i][i] = 0;
  return result;
}

std::vector<Candidate> free_candidates(size_t size) {
  std::vector<Candidate> result;
  for (size_t i = 0; i < size; ++i) {
    result.push_back({.id = fmt::format("{}", i), .key = fmt::format("GPU-{}", i), .temperature_celsius = 30});
  }
  return result;
}

Standing standing_of(const Device& device, const Wish& wish = {}) {
  device::Snapshot snapshot;
  snapshot.devices.push_back(device);
  return candidates_of(snapshot, wish).at(0).standing;
}

TEST(ClaimPolicy, StandingsOfDevices) {
  auto device = gpu(0);
  EXPECT_EQ(standing_of(device), Standing::kFree);
  EXPECT_EQ(standing_of(device, {.memory_bytes = 80 * kGiB}), Standing::kFree);
  EXPECT_EQ(standing_of(device, {.memory_bytes = 81 * kGiB}), Standing::kTooSmall);

  device.state = State::kBusy;
  device.readings.memory_used_bytes = 3 * kGiB;
  EXPECT_EQ(standing_of(device), Standing::kSuspect) << "memory without a process is not a process";
  device.processes = {{.pid = 7, .type = "graphics", .memory_bytes = 3 * kGiB}};
  EXPECT_EQ(standing_of(device), Standing::kFree) << "a desktop does not keep others away";
  device.readings.memory_free_bytes = 77 * kGiB;
  EXPECT_EQ(standing_of(device, {.memory_bytes = 78 * kGiB}), Standing::kTooSmall);
  device.processes.push_back({.pid = 8, .type = "compute", .memory_bytes = std::nullopt});
  EXPECT_EQ(standing_of(device), Standing::kInUse);
  device.processes = {{.pid = 8, .type = "mps"}};
  EXPECT_EQ(standing_of(device), Standing::kInUse);

  for (const auto state :
       {State::kLost, State::kNoAnswer, State::kNoPermission, State::kUnknown, State::kUnusable, State::kError}) {
    auto broken = gpu(0);
    broken.state = state;
    EXPECT_EQ(standing_of(broken), Standing::kUnusable) << name(state);
  }
  auto nameless = gpu(0);
  nameless.facts.uuid.clear();
  EXPECT_EQ(standing_of(nameless), Standing::kUnusable);
}

TEST(ClaimPolicy, SaysWhoUsesADevice) {
  device::Snapshot snapshot;
  snapshot.devices = {gpu(0), gpu(1)};
  snapshot.devices[0].processes = {{.pid = 8, .type = "compute"}};
  snapshot.devices[0].processes[0].info.user = "ada\x1b[2J";
  snapshot.devices[1].processes = {{.pid = 9, .type = "compute"}};
  const auto candidates = candidates_of(snapshot, {});
  EXPECT_EQ(candidates[0].reason, "in use without a claim by ada?[2J (pid 8)");
  EXPECT_THAT(candidates[1].reason, HasSubstr("process 9, which cannot be seen"));
}

TEST(ClaimPolicy, MigInstancesStandForTheirGpu) {
  device::Snapshot snapshot;
  snapshot.devices.push_back(gpu(0));
  snapshot.devices[0].readings.mig_enabled = true;
  Device instance = gpu(0);
  instance.index = 1;
  instance.facts.uuid = "MIG-5";
  snapshot.devices[0].instances = {instance};
  const auto candidates = candidates_of(snapshot, {});
  ASSERT_EQ(candidates.size(), 1U);
  EXPECT_EQ(candidates[0].id, "0:1");
  EXPECT_EQ(candidates[0].key, "MIG-5");
}

TEST(ClaimPolicy, PartitionsOfAnAmdCardHaveDifferentKeys) {
  device::Snapshot snapshot;
  for (int i = 0; i < 2; ++i) {
    auto device = gpu(i);
    device.vendor = device::Vendor::kAmd;
    device.facts.uuid = "GPU-same";
    device.facts.pci_bus_id = "0000:c1:00.0";
    snapshot.devices.push_back(device);
  }
  const auto candidates = candidates_of(snapshot, {});
  EXPECT_EQ(candidates[0].key, "amd-0000:c1:00.0");
  EXPECT_EQ(candidates[1].key, "amd-0000:c1:00.0-1");
  snapshot.devices[0].facts.minor_number = 128;
  snapshot.devices[1].facts.minor_number = 129;
  const auto both = candidates_of(snapshot, {});
  snapshot.devices.erase(snapshot.devices.begin());
  EXPECT_EQ(candidates_of(snapshot, {})[0].key, both[1].key) << "whichever devices a command has read";
  EXPECT_NE(both[0].key, both[1].key);
}

TEST(ClaimPolicy, TakesTheBestConnected) {
  auto closeness = uniform(8, 100);
  const auto connect = [&](size_t a, size_t b, int64_t value) { closeness[a][b] = closeness[b][a] = value; };
  connect(2, 5, 1004);
  connect(5, 6, 1002);
  connect(2, 6, 1002);
  const auto candidates = free_candidates(8);
  EXPECT_THAT(pick(candidates, closeness, {.num_devices = 2}).chosen, ElementsAre(2, 5));
  EXPECT_THAT(pick(candidates, closeness, {.num_devices = 3}).chosen, ElementsAre(2, 5, 6));
  EXPECT_THAT(pick(candidates, closeness, {.num_devices = 1}).chosen, ElementsAre(0)) << "leaves good sets to others";
  EXPECT_EQ(pick(candidates, closeness, {.num_devices = 8}).chosen.size(), 8U);
}

TEST(ClaimPolicy, TheWeakestConnectionCountsFirst) {
  auto closeness = uniform(4, 100);
  closeness[0][1] = closeness[1][0] = 1012;
  closeness[0][2] = closeness[2][0] = 1012;  // 0-1 and 0-2 are fast, but 1-2 is not
  for (const size_t a : {1, 2, 3}) {
    for (const size_t b : {1, 2, 3}) {
      if (a != b) closeness[a][b] = 500;
    }
  }
  EXPECT_THAT(pick(free_candidates(4), closeness, {.num_devices = 3}).chosen, ElementsAre(0, 1, 2));
  closeness[1][2] = closeness[2][1] = 200;
  EXPECT_THAT(pick(free_candidates(4), closeness, {.num_devices = 3}).chosen, ElementsAre(0, 1, 2))
      << "all sets have a connection of 200 or less; the sum decides";
}

TEST(ClaimPolicy, ThenTheCoolest) {
  auto candidates = free_candidates(4);
  candidates[0].temperature_celsius = 60;
  candidates[2].temperature_celsius = 25;
  candidates[3].temperature_celsius = 55;
  EXPECT_THAT(pick(candidates, uniform(4, 1012), {.num_devices = 1}).chosen, ElementsAre(2));
  EXPECT_THAT(pick(candidates, uniform(4, 1012), {.num_devices = 2}).chosen, ElementsAre(1, 2));
}

TEST(ClaimPolicy, GivesOnlyFreeOnesAndAllOrNothing) {
  auto candidates = free_candidates(4);
  candidates[0].standing = Standing::kClaimed;
  candidates[0].reason = "claimed by ada";
  candidates[1].standing = Standing::kSuspect;
  const auto picked = pick(candidates, uniform(4, 100), {.num_devices = 2});
  EXPECT_THAT(picked.chosen, ElementsAre(2, 3));
  EXPECT_THAT(picked.sentences[0], HasSubstr("device 0 is not given: claimed by ada"));
  const auto refused = pick(candidates, uniform(4, 100), {.num_devices = 3});
  EXPECT_THAT(refused.chosen, IsEmpty());
  EXPECT_THAT(refused.sentences.back(), HasSubstr("2 of 4 devices can be given, and 3 are wanted"));
  EXPECT_THAT(pick({}, {}, {.num_devices = 1}).chosen, IsEmpty());
}

TEST(ClaimPolicy, DevicesThatSeemBusyAreGivenLast) {
  device::Snapshot snapshot;
  snapshot.devices = {gpu(0), gpu(1), gpu(2)};
  snapshot.devices[0].readings.utilization_percent = 100;  // although it has no process, and no memory is used
  snapshot.devices[0].readings.temperature_celsius = 20;
  const auto candidates = candidates_of(snapshot, {});
  const auto closeness = uniform(3, 100);
  EXPECT_THAT(pick(candidates, closeness, {.num_devices = 1}).chosen, ElementsAre(1));
  const auto two = pick(candidates, closeness, {.num_devices = 2});
  EXPECT_THAT(two.chosen, ElementsAre(1, 2));
  EXPECT_THAT(two.sentences[0], HasSubstr("device 0 is given last"));
  EXPECT_EQ(pick(candidates, closeness, {.num_devices = 3}).chosen.size(), 3U);
}

TEST(ClaimPolicy, BadMemoryByItsSeverity) {
  auto device = gpu(0);
  device.readings.remapping_failed = true;
  EXPECT_EQ(standing_of(device), Standing::kUnusable);
  EXPECT_EQ(standing_of(device, {.memory_bytes = kGiB, .is_share = true}), Standing::kUnusable);
  device::Snapshot snapshot;
  snapshot.devices = {gpu(0), gpu(1), gpu(2)};
  snapshot.devices[0].readings.ecc_uncorrected_volatile = 1;
  snapshot.devices[1].readings.retirement_pending = true;
  const auto candidates = candidates_of(snapshot, {});
  EXPECT_THAT(candidates[0].damage, HasSubstr("1 memory error that could not be corrected"));
  EXPECT_THAT(pick(candidates, uniform(3, 100), {.num_devices = 1}).chosen, ElementsAre(2));
  EXPECT_EQ(pick(candidates, uniform(3, 100), {.num_devices = 3}).chosen.size(), 3U);
  // The driver tells it of the GPU, and it is so of the GPU's instances, too.
  snapshot.devices[1].instances = {gpu(0)};
  EXPECT_THAT(candidates_of(snapshot, {})[1].damage, HasSubstr("at the next reset"));
  snapshot.devices[1].readings.remapping_failed = true;
  EXPECT_EQ(candidates_of(snapshot, {})[1].standing, Standing::kUnusable);
}

/// Device 0 is whole, device 1 has three MIG instances, of which two are of one GPU instance, and device 2 is whole.
device::Snapshot mig_beside_whole(const std::string& driver_version) {
  device::Snapshot snapshot;
  snapshot.backends = {{.backend = "nvml", .is_available = true, .driver_version = driver_version}};
  snapshot.devices = {gpu(0), gpu(1), gpu(2)};
  snapshot.devices[1].readings.mig_enabled = true;
  for (const int64_t i : {0, 1, 2}) {
    auto& instance = snapshot.devices[1].instances.emplace_back(gpu(i));
    instance.facts.uuid = fmt::format("MIG-{}", i);
    instance.facts.gpu_instance = i == 0 ? 1 : 2;
    instance.readings.temperature_celsius = 20;
  }
  return snapshot;
}

TEST(ClaimPolicy, SeveralDevicesAreOnesThatAProgramSeesTogether) {
  struct Case {
    const char* driver;
    int64_t wanted;
    std::vector<std::string> ids;  ///< Empty: there are too few.
  };
  for (const auto& [driver, wanted, ids] :
       {Case{"535.54.03", 1, {"1:0"}}, Case{"535.54.03", 2, {"0", "2"}}, Case{"535.54.03", 3, {}}, Case{"", 3, {}},
        Case{"580.65.06", 2, {"0", "2"}}, Case{"580.65.06", 3, {}}, Case{"580.65.06", 4, {}}}) {
    const Wish wish{.num_devices = wanted};
    const auto candidates = candidates_of(mig_beside_whole(driver), wish);
    std::vector<std::string> chosen;
    for (const auto i : pick(candidates, uniform(candidates.size(), 100), wish).chosen) {
      chosen.push_back(candidates[i].id);
    }
    EXPECT_EQ(chosen, ids) << driver << " " << wanted;
  }
}

TEST(ClaimPolicy, DevicesOfOneUuidAreGivenToNobody) {
  auto snapshot = machine(3);
  snapshot.devices[2].facts.uuid = snapshot.devices[0].facts.uuid;
  const auto candidates = candidates_of(snapshot, {});
  EXPECT_EQ(candidates[0].standing, Standing::kUnusable);
  EXPECT_EQ(candidates[1].standing, Standing::kFree);
  EXPECT_EQ(candidates[2].standing, Standing::kUnusable);
  EXPECT_THAT(candidates[2].reason, HasSubstr("the same UUID"));
}

TEST(ClaimPolicy, InstancesAreGivenTogetherWhereWholeDevicesAreTooFew) {
  auto candidates = free_candidates(4);
  for (const size_t i : {1, 2, 3}) candidates[i].gpu_instance = fmt::format("0/{}", i);
  EXPECT_THAT(pick(candidates, uniform(4, 100), {.num_devices = 2}).chosen, ElementsAre(1, 2));
  EXPECT_THAT(pick(candidates, uniform(4, 100), {.num_devices = 3}).chosen, ElementsAre(1, 2, 3));
  EXPECT_THAT(pick(candidates, uniform(4, 100), {.num_devices = 4}).chosen, ElementsAre());
}

TEST(ClaimPolicy, LargeMachinesAreSearchedByGrowing) {
  auto closeness = uniform(64, 100);
  for (size_t a = 40; a < 48; ++a) {
    for (size_t b = 40; b < 48; ++b) {
      if (a != b) closeness[a][b] = 1012;
    }
  }
  EXPECT_THAT(pick(free_candidates(64), closeness, {.num_devices = 8}).chosen,
              ElementsAre(40, 41, 42, 43, 44, 45, 46, 47));
}

TEST(ClaimPolicy, ClosenessFollowsLinksAndTheBus) {
  auto snapshot = machine(4);
  const auto candidates = candidates_of(snapshot, {});
  snapshot.devices[0].links = {{{.kind = "nvlink", .is_active = true, .remote_pci_bus_id = "0000:04:00.0"}}};
  const std::vector<BusPath> paths = {{"0000:02:00.0", {"pci0000:00", "0000:00:01.0", "0000:01:08.0"}},
                                      {"0000:03:00.0", {"pci0000:00", "0000:00:01.0", "0000:01:09.0"}}};
  const auto closeness = closeness_of(snapshot, candidates, paths);
  ASSERT_EQ(closeness.size(), 4U);
  EXPECT_EQ(closeness[0][3], 1001);
  EXPECT_EQ(closeness[1][2], 500);
  EXPECT_LT(closeness[0][1], 100);
  EXPECT_EQ(closeness[2][2], 0);
}

}  // namespace
}  // namespace yoke::claim

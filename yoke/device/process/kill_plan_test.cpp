#include "yoke/device/process/kill_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace yoke::device {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

ProcessInfo info(int64_t uid) {
  return {
      .is_visible = true, .uid = uid, .user = uid == 0 ? "root" : "ada", .name = "x", .state = 'S', .start_ticks = 7};
}

DeviceProcess on_device(int64_t pid, int64_t uid = 1000, int64_t memory_bytes = 5) {
  return {.pid = pid, .type = "compute", .memory_bytes = memory_bytes, .info = info(uid)};
}

/// Two GPUs, the second with a MIG instance, and a CPU. Process 500 uses both GPUs. Process 400 is in a different PID
/// namespace.
Snapshot busy_machine() {
  Snapshot snapshot;
  DeviceProcess foreign{.pid = 400, .type = "compute"};
  foreign.info = {.is_visible = false, .reason = "not in this PID namespace"};
  Device first{.index = 0, .vendor = Vendor::kNvidia};
  first.processes = {on_device(500), on_device(501), foreign};
  Device second{.index = 1, .vendor = Vendor::kNvidia};
  second.processes = {on_device(500, 1000, 2), on_device(502, 0)};
  second.instances.push_back({.index = 0, .vendor = Vendor::kNvidia});
  second.instances[0].processes = {on_device(503)};
  snapshot.devices = {first, second, {.index = 2}};
  return snapshot;
}

std::vector<KillTarget> plan(const KillRequest& request, const KillAsker& asker = {.pid = 42},
                             const Snapshot& snapshot = busy_machine()) {
  return plan_kill(request, snapshot, asker, [](int64_t pid) {
    return pid < 1000 ? info(1000) : ProcessInfo{.is_visible = false, .reason = "gone"};
  });
}

std::vector<int64_t> pids_of(const std::vector<KillTarget>& targets) {
  std::vector<int64_t> pids;
  for (const auto& target : targets) {
    if (!target.refusal) pids.push_back(target.pid);
  }
  return pids;
}

TEST(KillPlan, ByDeviceAndUser) {
  EXPECT_THAT(pids_of(plan({.devices = DeviceSelection::parse({"0"})})), ElementsAre(500, 501));
  EXPECT_THAT(pids_of(plan({.devices = DeviceSelection::parse({"1"})})), ElementsAre(502, 500, 503))
      << "with its instances";
  EXPECT_THAT(pids_of(plan({.devices = DeviceSelection::parse({"1:0"})})), ElementsAre(503));
  EXPECT_THAT(pids_of(plan({.uid = 1000})), ElementsAre(500, 501, 503));
  EXPECT_THAT(pids_of(plan({.devices = DeviceSelection::parse({"1"}), .uid = 0})), ElementsAre(502));
  EXPECT_THROW(plan({.devices = DeviceSelection::parse({"cpu"})}), Error) << "everybody uses it";
  EXPECT_THROW(plan({.devices = DeviceSelection::parse({"7"})}), Error);
}

TEST(KillPlan, AProcessOfTwoDevicesIsOne) {
  const auto targets = plan({.pids = {500, 500}});
  ASSERT_THAT(targets, SizeIs(1));
  EXPECT_THAT(targets[0].devices, ElementsAre("0", "1"));
  EXPECT_EQ(targets[0].process.memory_bytes, 7);
}

TEST(KillPlan, WhatIsOnNoDeviceIsRefusedUnlessTold) {
  const auto refused = plan({.pids = {77}});
  ASSERT_TRUE(refused.at(0).refusal);
  EXPECT_EQ(refused[0].refusal->code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refused[0].refusal->reason, HasSubstr("is on no device; --any"));
  EXPECT_THAT(pids_of(plan({.pids = {77}, .with_any = true})), ElementsAre(77));

  auto silent = busy_machine();
  silent.devices[0] = {.index = 0, .vendor = Vendor::kNvidia, .state = State::kNoAnswer};
  EXPECT_THAT(plan({.pids = {501}}, {}, silent).at(0).refusal->reason, HasSubstr("device 0 did not"));
}

TEST(KillPlan, WhatIsNotThereIsNotFound) {
  for (const bool with_any : {false, true}) {
    const auto targets = plan({.pids = {4000}, .with_any = with_any});
    ASSERT_TRUE(targets.at(0).refusal);
    EXPECT_EQ(*targets[0].refusal, (Refusal{ErrorCode::kNotFound, "is not there"}));
  }
}

TEST(KillPlan, WhatIsInAnotherNamespaceCannotBeReached) {
  const auto targets = plan({.pids = {400}});
  ASSERT_TRUE(targets.at(0).refusal);
  EXPECT_THAT(targets[0].refusal->reason, HasSubstr("cannot be reached from here: not in this PID namespace"));
  auto hidden = busy_machine();
  hidden.devices[0].processes[0].info = {.is_visible = true, .reason = "hidden by hidepid", .uid = 0};
  EXPECT_EQ(plan({.pids = {500}}, {}, hidden).at(0).refusal->code, ErrorCode::kPermissionDenied)
      << "without its start there is no telling it from a later process";
}

TEST(KillPlan, NeitherItselfNorTheFirstProcess) {
  EXPECT_THAT(plan({.pids = {500}}, {.pid = 500}).at(0).refusal->reason, HasSubstr("is this command"));
  auto with_init = busy_machine();
  with_init.devices[0].processes = {on_device(1, 0)};
  for (const auto& request : {KillRequest{.pids = {1}}, KillRequest{.devices = DeviceSelection::parse({"0"})}}) {
    EXPECT_THAT(plan(request, {}, with_init).at(0).refusal->reason, HasSubstr("first process"));
  }
  EXPECT_TRUE(plan({.pids = {1}, .with_any = true}, {}).at(0).refusal);
}

TEST(KillPlan, ItsParentsOnlyByName) {
  const KillAsker asker{.pid = 42, .ancestors = {501, 41}};
  EXPECT_THAT(pids_of(plan({.uid = 1000}, asker)), ElementsAre(500, 503));
  EXPECT_THAT(pids_of(plan({.pids = {501}}, asker)), ElementsAre(501));
}

}  // namespace
}  // namespace yoke::device

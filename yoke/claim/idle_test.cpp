#include "yoke/claim/idle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::claim {
namespace {

using device::Device;
using device::State;
using std::chrono::seconds;
using testing::ElementsAre;

constexpr Time kStart{seconds(1'795'000'000)};

Device gpu(int64_t index, std::optional<int64_t> percent, const std::vector<std::string>& process_types) {
  Device device{.index = index, .vendor = device::Vendor::kNvidia, .state = State::kFree};
  device.has_process_list = true;
  device.readings.utilization_percent = percent;
  for (const auto& type : process_types) device.processes.push_back({.pid = 7, .type = type});
  return device;
}

TEST(ClaimIdle, ADeviceIsUsedIfAProcessComputesOnIt) {
  EXPECT_EQ(is_used(gpu(0, 0, {})), false);
  EXPECT_EQ(is_used(gpu(0, 90, {})), false) << "a process of somebody else has just ended";
  EXPECT_EQ(is_used(gpu(0, 90, {"graphics"})), false) << "a desktop";
  EXPECT_EQ(is_used(gpu(0, 0, {"compute"})), false) << "a notebook that only keeps its memory";
  EXPECT_EQ(is_used(gpu(0, 1, {"compute"})), true);
  EXPECT_EQ(is_used(gpu(0, std::nullopt, {"compute"})), true) << "MIG instances tell no utilisation";
  auto unknown = gpu(0, 0, {});
  unknown.has_process_list = false;
  EXPECT_EQ(is_used(unknown), std::nullopt);
  auto lost = gpu(0, 0, {});
  lost.state = State::kLost;
  EXPECT_EQ(is_used(lost), std::nullopt);
}

TEST(ClaimIdle, DevicesAndInstancesAreFoundByTheirIds) {
  device::Snapshot snapshot;
  snapshot.devices = {gpu(0, 0, {}), gpu(1, 50, {"compute"}), gpu(2, 0, {})};
  snapshot.devices[2].instances = {gpu(0, std::nullopt, {}), gpu(1, std::nullopt, {"compute"})};
  EXPECT_THAT(uses_by_id(snapshot, {"2:1", "0", "1", "2:0", "9"}), ElementsAre(true, false, true, false, std::nullopt));
}

TEST(ClaimIdle, LooksAddUpToIdleTime) {
  Note note{.keys = {"GPU-a", "GPU-b", "GPU-c"}, .since = kStart};
  EXPECT_EQ(idle_time(note, "GPU-a", kStart + seconds(1)), std::nullopt) << "nobody looks";
  note.activity = after_look(note, {false, true, std::nullopt}, kStart + seconds(30));
  EXPECT_THAT(note.activity->used_at, ElementsAre(kStart, kStart + seconds(30), kStart + seconds(30)));
  EXPECT_EQ(note.activity->idle_device_seconds, 30);
  note.activity = after_look(note, {false, false, true}, kStart + seconds(60));
  EXPECT_EQ(note.activity->idle_device_seconds, 90);
  EXPECT_EQ(idle_time(note, "GPU-a", kStart + seconds(70)), seconds(70));
  EXPECT_EQ(idle_time(note, "GPU-b", kStart + seconds(70)), seconds(40));
  EXPECT_EQ(idle_time(note, "GPU-x", kStart + seconds(70)), std::nullopt);
  EXPECT_EQ(idle_time(note, "GPU-a", kStart + seconds(600)), std::nullopt) << "nobody has looked lately";
  EXPECT_EQ(idle_time(note, "GPU-c", kStart), seconds(0)) << "the clock was set back";
  EXPECT_EQ(parse_note(to_text(note)), note);
}

TEST(ClaimIdle, ForeignTextAboutUseIsHarmless) {
  const std::string begin = R"({"keys":["GPU-a"],"since":1795000000,"activity":)";
  for (const char* use : {"7", "[]", "{}", R"({"looked_at":"x","used_at":[]})", R"({"looked_at":1,"used_at":{}})"}) {
    const auto note = parse_note(begin + use + "}");
    ASSERT_TRUE(note) << use;
    EXPECT_EQ(note->activity, std::nullopt) << use;
  }
  const auto note = parse_note(begin + R"({"looked_at":1795000000,"used_at":["x",-1,1e300]}})");
  ASSERT_TRUE(note && note->activity);
  EXPECT_EQ(idle_time(*note, "GPU-a", kStart), seconds(0));
}

TEST(ClaimIdle, ALimitIsToldOnceForEachIdleTime) {
  const Clock::time_point begin{};
  const auto at = [&](int s) { return begin + seconds(s); };
  IdleWatch watch({.warn = seconds(30), .end = seconds(100)}, begin);
  EXPECT_EQ(watch.step(at(29)), IdleStep::kNone);
  EXPECT_EQ(watch.step(at(30)), IdleStep::kWarn);
  EXPECT_EQ(watch.idle_for(at(30)), seconds(30));
  EXPECT_EQ(watch.step(at(60)), IdleStep::kNone) << "once";
  watch.note_use(at(70));
  EXPECT_EQ(watch.step(at(99)), IdleStep::kNone);
  EXPECT_EQ(watch.step(at(100)), IdleStep::kWarn) << "it is idle again";
  EXPECT_EQ(watch.step(at(169)), IdleStep::kNone);
  EXPECT_EQ(watch.step(at(170)), IdleStep::kEnd);
  EXPECT_EQ(watch.step(at(180)), IdleStep::kNone) << "once";
  IdleWatch without({}, begin);
  EXPECT_EQ(without.step(at(1'000'000)), IdleStep::kNone);
  EXPECT_EQ(look_interval({}), seconds(30));
  EXPECT_EQ(look_interval({.warn = seconds(20), .end = seconds(400)}), seconds(5));
}

}  // namespace
}  // namespace yoke::claim

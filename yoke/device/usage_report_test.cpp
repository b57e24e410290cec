#include "yoke/device/usage_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::device {
namespace {

using testing::ElementsAre;
using testing::Pair;

struct Reading {
  std::optional<int64_t> utilization_percent;
  std::optional<int64_t> power_mw = std::nullopt;
  std::optional<int64_t> energy_mj = std::nullopt;
  std::optional<int64_t> memory_used_bytes = std::nullopt;
  bool is_used = true;
  std::optional<std::vector<std::string>> throttle_reasons = std::nullopt;
};

Snapshot snapshot_of(const std::vector<Reading>& gpus) {
  Snapshot snapshot;
  for (const auto& reading : gpus) {
    Device device{.index = static_cast<int64_t>(snapshot.devices.size()), .vendor = Vendor::kNvidia};
    device.facts.uuid = "GPU-" + std::to_string(device.index);
    device.readings.utilization_percent = reading.utilization_percent;
    device.readings.power_mw = reading.power_mw;
    device.readings.energy_mj = reading.energy_mj;
    device.readings.memory_used_bytes = reading.memory_used_bytes;
    device.readings.memory_total_bytes = 1000;
    device.readings.throttle_reasons = reading.throttle_reasons;
    device.processes.push_back({.pid = reading.is_used ? 42 : 7, .memory_bytes = 100});
    snapshot.devices.push_back(device);
  }
  snapshot.devices.push_back({.index = static_cast<int64_t>(gpus.size()), .vendor = Vendor::kCpu});
  return snapshot;
}

const auto kIsOurs = [](const DeviceProcess& process) { return process.pid == 42; };

/// Samples one device every second, starting at 0.
UsageReport report_of(const std::vector<Reading>& readings, UsageRecorder::Options options = {}) {
  options.interval = Seconds(1);
  UsageRecorder recorder(options);
  double time = 0;
  for (const auto& reading : readings) recorder.add(Seconds(time++), snapshot_of({reading}), kIsOurs);
  return recorder.report(Seconds(time - 1));
}

TEST(UsageReport, PercentilesAreByTime) {
  // A sample covers the second before it, so the sample at time 0 covers nothing. The other samples cover 20 s: one
  // second at 0 %, nine at 50 %, ten at 100 %.
  std::vector<Reading> readings = {{77}, {0}};
  for (int i = 0; i < 9; ++i) readings.push_back({50});
  for (int i = 0; i < 10; ++i) readings.push_back({100});
  const auto report = report_of(readings);
  ASSERT_EQ(report.devices.size(), 1U);
  const auto& usage = report.devices[0];
  EXPECT_EQ(report.num_samples, 21);
  EXPECT_DOUBLE_EQ(*usage.mean_percent, 72.5);
  EXPECT_EQ(usage.p5_percent, 0);
  EXPECT_EQ(usage.p50_percent, 50);
  EXPECT_EQ(usage.p95_percent, 100);
  EXPECT_DOUBLE_EQ(*usage.under_goal_percent, 50);
}

TEST(UsageReport, TheGoalItselfIsReached) {
  EXPECT_DOUBLE_EQ(*report_of({{90}, {90}, {89}}).devices[0].under_goal_percent, 50);
  EXPECT_DOUBLE_EQ(*report_of({{90}, {90}, {89}}, {.goal_percent = 50}).devices[0].under_goal_percent, 0);
}

TEST(UsageReport, SamplesWeighAsLongAsTheyLast) {
  UsageRecorder recorder({.interval = Seconds(1)});
  recorder.add(Seconds(0), snapshot_of({{0}}), kIsOurs);
  recorder.add(Seconds(1), snapshot_of({{100}}), kIsOurs);
  recorder.add(Seconds(4), snapshot_of({{20}}), kIsOurs);
  EXPECT_DOUBLE_EQ(*recorder.report(Seconds(4)).devices[0].mean_percent, (100 + 3 * 20) / 4.0);
}

TEST(UsageReport, AGapIsUnknown) {
  UsageRecorder recorder({.interval = Seconds(1)});
  recorder.add(Seconds(0), snapshot_of({{100}}), kIsOurs);
  recorder.add(Seconds(1), snapshot_of({{100}}), kIsOurs);
  recorder.add(Seconds(3601), snapshot_of({{0}}), kIsOurs);  // the program was suspended for an hour
  const auto usage = recorder.report(Seconds(3601)).devices[0];
  EXPECT_DOUBLE_EQ(usage.unknown.count(), 3596);
  EXPECT_DOUBLE_EQ(*usage.mean_percent, 20);
}

TEST(UsageReport, WhatTheDriverDoesNotTellIsUnknown) {
  const auto usage = report_of({{std::nullopt}, {std::nullopt}, {std::nullopt}}).devices[0];
  EXPECT_EQ(usage.mean_percent, std::nullopt);
  EXPECT_EQ(usage.p50_percent, std::nullopt);
  EXPECT_EQ(usage.under_goal_percent, std::nullopt);
  EXPECT_EQ(usage.energy_mj, std::nullopt);
  EXPECT_EQ(usage.mean_power_mw, std::nullopt);
  EXPECT_DOUBLE_EQ(usage.unknown.count(), 2);
}

TEST(UsageReport, EnergyIsCountedByTheDeviceOrIntegrated) {
  const auto counted =
      report_of({{1, 100'000, 5'000'000}, {1, 100'000, 5'150'000}, {1, 300'000, 5'500'000}}).devices[0];
  EXPECT_TRUE(counted.is_energy_counted);
  EXPECT_EQ(counted.energy_mj, 500'000);
  EXPECT_EQ(counted.mean_power_mw, 200'000);
  EXPECT_EQ(counted.peak_power_mw, 300'000);
  const auto integrated = report_of({{1, 100'000}, {1, 100'000}, {1, 300'000}}).devices[0];
  EXPECT_FALSE(integrated.is_energy_counted);
  EXPECT_EQ(integrated.energy_mj, 400'000);
  const auto reloaded = report_of({{1, 100'000, 5'000'000}, {1, 100'000, 0}, {1, 300'000, 300'000}}).devices[0];
  EXPECT_FALSE(reloaded.is_energy_counted);
  EXPECT_EQ(reloaded.energy_mj, 400'000);
}

TEST(UsageReport, OnlyDevicesThatTheProgramUsedAreReported) {
  UsageRecorder recorder({.interval = Seconds(1)});
  const Reading others{.utilization_percent = 100, .is_used = false}, ours{.utilization_percent = 80};
  recorder.add(Seconds(0), snapshot_of({others, others}), kIsOurs);
  recorder.add(Seconds(1), snapshot_of({others, others}), kIsOurs);
  EXPECT_EQ(recorder.report(Seconds(1)).devices.size(), 2U) << "none was used: all that were watched";
  EXPECT_FALSE(recorder.report(Seconds(1)).devices[0].was_used);
  recorder.add(Seconds(2), snapshot_of({others, ours}), kIsOurs);
  recorder.add(Seconds(3), snapshot_of({others, ours}), kIsOurs);
  recorder.add(Seconds(4), snapshot_of({others, others}), kIsOurs);
  const auto report = recorder.report(Seconds(4));
  ASSERT_EQ(report.devices.size(), 1U);
  const auto& usage = report.devices[0];
  EXPECT_EQ(usage.id, "1");
  EXPECT_EQ(usage.uuid, "GPU-1");
  EXPECT_EQ(usage.first_used, Seconds(2));
  EXPECT_EQ(usage.last_used, Seconds(3));
  EXPECT_DOUBLE_EQ(*usage.mean_percent, 90);
  EXPECT_DOUBLE_EQ(*usage.mean_while_used_percent, 80);
  EXPECT_EQ(usage.program_memory_peak_bytes, 100);
}

TEST(UsageReport, WatchesWhatItIsToldTo) {
  UsageRecorder recorder({.is_watched = [](const std::string& id) { return id == "cpu"; }});
  recorder.add(Seconds(0), snapshot_of({{1}, {2}}), kIsOurs);
  const auto report = recorder.report(Seconds(0));
  ASSERT_EQ(report.devices.size(), 1U);
  EXPECT_EQ(report.devices[0].id, "cpu");
}

TEST(UsageReport, MigInstancesAreDevices) {
  auto snapshot = snapshot_of({{std::nullopt, {}, {}, {}, false}});
  Device instance = snapshot.devices[0];
  instance.index = 1;
  instance.processes[0].pid = 42;
  snapshot.devices[0].instances = {instance};
  UsageRecorder recorder({});
  recorder.add(Seconds(0), snapshot, kIsOurs);
  ASSERT_EQ(recorder.report(Seconds(0)).devices.size(), 1U);
  EXPECT_EQ(recorder.report(Seconds(0)).devices[0].id, "0:1");
}

TEST(UsageReport, ThrottlingBesideIdleness) {
  const auto usage = report_of({{1},
                                {.utilization_percent = 1, .throttle_reasons = std::vector<std::string>{"idle"}},
                                {.utilization_percent = 1, .throttle_reasons = std::vector<std::string>{"power cap"}},
                                {.utilization_percent = 1, .throttle_reasons = std::vector<std::string>{}},
                                {.utilization_percent = 1, .throttle_reasons = std::vector<std::string>{"power cap"}}})
                         .devices[0];
  EXPECT_THAT(usage.throttled_percent, ElementsAre(Pair("power cap", 50.0)));
}

TEST(UsageReport, ALongRunNeedsNoMoreMemoryAndLosesNothing) {
  std::vector<Reading> readings(20'000, {.utilization_percent = 0, .memory_used_bytes = 250});
  for (size_t i = 10'001; i < readings.size(); ++i) readings[i].utilization_percent = 100;
  const auto usage = report_of(readings).devices[0];
  EXPECT_LE(usage.timeline.size(), 2048U);
  EXPECT_GT(usage.timeline.size(), 1000U);
  EXPECT_NEAR(usage.bin.count() * static_cast<double>(usage.timeline.size()), 19'999, 2 * usage.bin.count());
  EXPECT_EQ(usage.timeline.front(), (UsageBin{0, 25}));
  EXPECT_EQ(usage.timeline.back(), (UsageBin{100, 25}));
  double mean = 0;
  for (const auto& bin : usage.timeline) mean += *bin.utilization_percent / static_cast<double>(usage.timeline.size());
  EXPECT_NEAR(mean, 50, 0.1);
  EXPECT_NEAR(*usage.mean_percent, 50, 0.1);
}

TEST(UsageReport, NoSampleIsAnEmptyReport) {
  EXPECT_TRUE(UsageRecorder({}).report(Seconds(0)).devices.empty());
  const auto usage = report_of({{50}}).devices[0];  // one sample covers no time
  EXPECT_EQ(usage.mean_percent, std::nullopt);
  EXPECT_TRUE(usage.timeline.empty());
}

}  // namespace
}  // namespace yoke::device

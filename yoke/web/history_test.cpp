#include "yoke/web/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace yoke::web {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

const Series::Time kBegin = Series::Time(seconds(1'795'420'800));  // a multiple of five minutes

device::Readings use(int64_t percent) { return {.utilization_percent = percent}; }

device::Snapshot snapshot_at(Series::Time time, std::optional<int64_t> percent, const std::string& uuid = "GPU-1") {
  device::Snapshot snapshot{.time = time};
  snapshot.devices.push_back({.index = 0, .vendor = device::Vendor::kNvidia});
  snapshot.devices[0].facts.uuid = uuid;
  snapshot.devices[0].readings.utilization_percent = percent;
  return snapshot;
}

TEST(Series, KeepsLeastMeanAndMostOfEachInterval) {
  Series series(minutes(5), 288);
  for (const int64_t percent : {20, 90, 40}) series.add(kBegin + seconds(percent), use(percent));
  series.add(kBegin + minutes(5), use(7));
  ASSERT_EQ(series.buckets().size(), 2U);
  const auto& first = series.buckets()[0].second[0];
  EXPECT_EQ(first.min, 20);
  EXPECT_EQ(first.max, 90);
  EXPECT_EQ(first.mean(), 50);
  EXPECT_EQ(series.buckets()[1].second[0].mean(), 7);
  EXPECT_EQ(series.buckets()[0].second[1].count, 0U) << "memory is not known, and not 0";
}

TEST(Series, HoldsNoMoreThanItsCapacity) {
  Series series(seconds(10), 90);
  for (int i = 0; i < 10'000; ++i) series.add(kBegin + seconds(i), use(i % 100));
  EXPECT_EQ(series.buckets().size(), 90U);
  EXPECT_EQ(series.buckets().back().first, series.number_of(kBegin + seconds(9'999)));
  series.add(kBegin + hours(1000), use(1));
  EXPECT_EQ(series.buckets().size(), 1U) << "all others are too old";
}

TEST(Series, AClockThatIsSetBackLeavesNothingInTheFuture) {
  Series series(seconds(10), 90);
  for (int i = 0; i < 90; ++i) series.add(kBegin + seconds(10 * i), use(1));
  series.add(kBegin + seconds(5), use(99));
  ASSERT_EQ(series.buckets().size(), 1U);
  EXPECT_EQ(series.buckets()[0].second[0].max, 99);
}

TEST(History, KeepsADeviceThatLosesItsUuid) {
  History history;
  history.add(snapshot_at(kBegin, 50));
  history.add(snapshot_at(kBegin + minutes(5), std::nullopt, ""));
  ASSERT_NE(history.find("0"), nullptr);
  EXPECT_EQ(history.find("0")->uuid, "GPU-1");
  EXPECT_EQ(history.find("1"), nullptr);
}

TEST(History, ForgetsADeviceAfterADay) {
  History history;
  history.add(snapshot_at(kBegin, 50));
  device::Snapshot without{.time = kBegin + hours(23)};
  history.add(without);
  EXPECT_NE(history.find("0"), nullptr);
  without.time = kBegin + hours(25);
  history.add(without);
  EXPECT_EQ(history.find("0"), nullptr);
}

TEST(History, JsonHasNullForWhatIsNotKnown) {
  History history;
  history.add(snapshot_at(kBegin + seconds(10), 20));
  history.add(snapshot_at(kBegin + seconds(20), 41));
  history.add(snapshot_at(kBegin + minutes(10), 7));
  const auto json = history.to_json(kBegin + minutes(16));
  EXPECT_EQ(json["since_seconds"], 1'795'420'810);
  EXPECT_EQ(json["bucket_seconds"], 300);
  const auto& device = json["devices"][0];
  EXPECT_EQ(device["device"], "0");
  EXPECT_EQ(device["uuid"], "GPU-1");
  EXPECT_EQ(device["start_seconds"], 1'795'420'800);
  EXPECT_EQ(device["utilization_percent"]["mean"].dump(), "[30.5,null,7.0,null]");
  EXPECT_EQ(device["utilization_percent"]["min"].dump(), "[20.0,null,7.0,null]");
  EXPECT_EQ(device["utilization_percent"]["max"].dump(), "[41.0,null,7.0,null]");
  EXPECT_EQ(device["power_watts"]["mean"].dump(), "[null,null,null,null]");
}

TEST(History, NoSampleIsAnEmptyHistory) {
  const auto json = History().to_json(kBegin);
  EXPECT_TRUE(json["since_seconds"].is_null());
  EXPECT_TRUE(json["devices"].empty());
}

}  // namespace
}  // namespace yoke::web

#include "yoke/tune/step_times.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace yoke::tune {
namespace {

/// Steps of equal duration, the first `num_slow` of which take ten times as long.
RankSteps steps_of(double seconds, int64_t num_steps, int64_t num_slow = 0) {
  RankSteps rank;
  double now = 1000;
  for (int64_t step = 0; step < num_steps; ++step) {
    now += seconds * (step < num_slow ? 10 : 1);
    rank.ends.push_back({step, now});
  }
  return rank;
}

TEST(TuneStepTimes, AreReadFromTheLinesOfARank) {
  RankSteps rank;
  add_lines(
      "{\"rank\":1,\"world_size\":4,\"local_world_size\":2,\"pid\":7}\n"
      "{\"step\":0,\"seconds\":5.5,\"resident_peak_bytes\":100,\"address_space_peak_bytes\":500}\n"
      "{\"step\":9,\"seconds\":6.5,\"resident_peak_bytes\":200,\"device_peak_bytes\":7,\"device_limit_bytes\":9}",
      rank);
  EXPECT_EQ(rank.rank, 1);
  EXPECT_EQ(rank.world_size, 4);
  EXPECT_EQ(rank.local_world_size, 2);
  EXPECT_EQ(rank.num_steps(), 10);
  EXPECT_EQ(rank.memory[0].peak_bytes, 200);
  EXPECT_EQ(rank.memory[1].peak_bytes, 500);
  EXPECT_EQ(rank.memory[2].limit_bytes, 9);
}

TEST(TuneStepTimes, DamagedLinesAreLeftOut) {
  RankSteps rank;
  add_lines(
      "nonsense\n[1]\n{\"step\":\"x\",\"seconds\":1}\n{\"step\":3}\n{\"rank\":{}}\n{\"step\":5,\"seconds\":2}\n"
      "{\"step\":4,\"seconds\":3}\n{\"step\":6,\"seconds\":1}\n{\"world_size\":-5,\"local_world_size\":-5}\n",
      rank);
  EXPECT_EQ(rank.ends.size(), 1U);
  EXPECT_EQ(rank.num_steps(), 6);
  EXPECT_EQ(rank.world_size, 1);
  EXPECT_EQ(rank.local_world_size, 1);
}

TEST(TunePace, LeavesOutTheWarmUp) {
  const std::vector<RankSteps> ranks = {steps_of(0.1, 50, 3)};
  const auto pace = pace_of(ranks, {});
  ASSERT_TRUE(pace);
  EXPECT_NEAR(pace->step_seconds, 0.1, 1e-9);
  EXPECT_LT(pace->spread_percent, 0.01);
  EXPECT_TRUE(pace->is_enough);
}

TEST(TunePace, IsThatOfTheSlowestRank) {
  const std::vector<RankSteps> ranks = {steps_of(0.1, 50), steps_of(0.13, 40)};
  EXPECT_NEAR(pace_of(ranks, {})->step_seconds, 0.13, 1e-9);
}

TEST(TunePace, WaitsForAllRanksOfTheHost) {
  auto rank = steps_of(0.1, 50);
  rank.world_size = 4;
  rank.local_world_size = 2;
  EXPECT_FALSE(pace_of(std::vector{rank}, {}));
  EXPECT_TRUE(pace_of(std::vector{rank, rank}, {})) << "two others are on another host";
  EXPECT_FALSE(pace_of({}, {}));
}

TEST(TunePace, APauseForAnEvaluationDoesNotCount) {
  auto rank = steps_of(0.01, 400);
  for (auto& end : rank.ends) end.seconds += end.step > 250 ? 3 : 0;
  EXPECT_NEAR(pace_of(std::vector{rank}, {})->step_seconds, 0.01, 1e-9);
}

TEST(TunePace, CountsStepsBetweenLines) {
  RankSteps rank;  // a fast program: a line every 0.1 s, and 100 steps in between
  for (int64_t i = 0; i < 30; ++i) rank.ends.push_back({100 * i, 50 + 0.1 * static_cast<double>(i)});
  EXPECT_NEAR(pace_of(std::vector{rank}, {})->step_seconds, 0.001, 1e-9);
}

TEST(TunePace, MeasuresLongerWhileItIsUncertain) {
  auto rank = steps_of(0.1, 25);
  for (size_t i = 1; i < rank.ends.size(); ++i) rank.ends[i].seconds += i % 3 == 0 ? 0.05 : 0;
  EXPECT_FALSE(pace_of(std::vector{rank}, {})->is_enough);
  EXPECT_TRUE(pace_of(std::vector{rank}, {.max_seconds = 1.5})->is_enough) << "but not for ever";
  EXPECT_TRUE(pace_of(std::vector{steps_of(0.1, 25)}, {})->is_enough);
  EXPECT_FALSE(pace_of(std::vector{steps_of(0.01, 25)}, {})->is_enough) << "too short";
}

TEST(TunePace, NeedsMoreThanAFewSteps) {
  EXPECT_FALSE(pace_of(std::vector{steps_of(1, 0)}, {}));
  EXPECT_FALSE(pace_of(std::vector{steps_of(1, 1)}, {}));
  EXPECT_FALSE(pace_of(std::vector{steps_of(1, 4)}, {}));
  EXPECT_TRUE(pace_of(std::vector{steps_of(1, 5)}, {}));
}

TEST(TuneMemory, OfTheHostIsTheSumAndOthersAreTheLargest) {
  std::vector<RankSteps> ranks(2);
  ranks[0].memory = {MemoryUse{100, 0}, {10, 50}, {7, 90}};
  ranks[1].memory = {MemoryUse{120, 0}, {20, 40}, {5, 80}};
  const auto memory = memory_of(ranks);
  EXPECT_EQ(memory[0].peak_bytes, 220);
  EXPECT_EQ(memory[1].peak_bytes, 20);
  EXPECT_EQ(memory[1].limit_bytes, 40);
  EXPECT_EQ(memory[2].peak_bytes, 7);
  EXPECT_EQ(memory[2].limit_bytes, 80);
}

TEST(TuneHostGrowth, IsThatOfTheSecondHalfAndOfAllRanks) {
  const auto rank_with = [](int64_t base, int64_t early, int64_t late) {
    RankSteps rank;
    for (int64_t step = 0; step <= 1000; ++step) {
      base += step <= 500 ? early : late;
      rank.ends.push_back({step, 1.0 + static_cast<double>(step), base});
    }
    rank.ends.push_back({1001, 1002});  // as a program ends
    return rank;
  };
  const auto steady = rank_with(500 << 20, 200 << 10, 0), growing = rank_with(500 << 20, 0, 200 << 10);
  const auto slowly = rank_with(500 << 20, 0, 1 << 10);
  EXPECT_EQ(host_growth(std::vector{steady}), 0) << "it has grown only while it warmed up";
  EXPECT_EQ(host_growth(std::vector{slowly}), 0) << "half a MiB is not certain";
  EXPECT_DOUBLE_EQ(host_growth(std::vector{growing}), 200 << 10);
  EXPECT_DOUBLE_EQ(host_growth(std::vector{growing, steady, growing}), 400 << 10);
  EXPECT_EQ(host_growth(std::vector<RankSteps>{}), 0);
  EXPECT_EQ(host_growth(std::vector{RankSteps{}}), 0);
}

}  // namespace
}  // namespace yoke::tune

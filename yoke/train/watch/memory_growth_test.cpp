#include "yoke/train/watch/detail/memory_growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>

namespace yoke::train::detail {
namespace {

constexpr double kMiB = 1 << 20;
using Series = std::vector<MemorySample>;

/// A sample after each tenth step, from 10 on.
Series series(size_t count, const std::function<double(double step)>& mib) {
  Series samples;
  for (size_t i = 1; i <= count; ++i) {
    const auto step = 10.0 * static_cast<double>(i);
    samples.push_back({static_cast<int64_t>(step), static_cast<int64_t>(kMiB * mib(step))});
  }
  return samples;
}

TEST(MemoryGrowth, IsSteady) {
  const auto found = find_growth(series(40, [](double step) { return 500 + step; }));
  EXPECT_EQ(found, (MemoryGrowth{.bytes_per_step = 1 << 20, .since = 10, .bytes = 900 << 20}));
}

TEST(MemoryGrowth, BeginsWhereItBegins) {
  const auto found = find_growth(series(60, [](double step) { return 500 + std::max(0.0, step - 300); }));
  ASSERT_TRUE(found);
  EXPECT_NEAR(static_cast<double>(found->since), 300, 60);
}

TEST(MemoryGrowth, ToleratesNoiseAndAStartThatIsSteeper) {
  std::mt19937 random(1);
  const auto noisy = series(60, [&](double step) { return 500 + step + static_cast<double>(random() % 30); });
  EXPECT_TRUE(find_growth(noisy));
  const auto steep = series(60, [](double step) { return 500 + (step < 50 ? 20 * step : 1000 + (step - 50)); });
  const auto found = find_growth(steep);
  ASSERT_TRUE(found);
  EXPECT_NEAR(static_cast<double>(found->bytes_per_step), kMiB, 0.5 * kMiB);
}

TEST(MemoryGrowth, IsNoneOfWhatIsNoLeak) {
  const std::pair<const char*, std::function<double(double)>> cases[] = {
      {"constant", [](double) { return 500; }},
      {"a plateau after a start", [](double step) { return 500 + std::min(step, 100.0); }},
      {"a plateau after most of the time", [](double step) { return 500 + std::min(step, 300.0); }},
      {"a start that becomes slower", [](double step) { return 500 + 300 * (1 - std::exp(-step / 60)); }},
      {"once, as at an evaluation", [](double step) { return step < 300 ? 500 : 800; }},
      {"twice", [](double step) { return 500 + (step < 200   ? 0
                                                : step < 400 ? 200
                                                             : 400); }},
      {"teeth of a saw", [](double step) { return 500 + std::fmod(step, 90); }},
      {"long teeth of a saw", [](double step) { return 500 + 2 * std::fmod(step + 150, 300); }},
      {"less", [](double step) { return 2000 - step; }},
      {"a little", [](double step) { return 500 + 0.04 * step; }},
      {"little of much", [](double step) { return 50'000 + step; }}};
  for (const auto& [what, mib] : cases) {
    for (const size_t count : {40, 60}) EXPECT_EQ(find_growth(series(count, mib)), std::nullopt) << what << count;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const auto noise = series(60, [&](double) { return 500 + static_cast<double>(random() % 200); });
    EXPECT_EQ(find_growth(noise), std::nullopt) << i;
  }
}

TEST(MemoryGrowth, NeedsSeventeenSamples) {
  const auto leak = [](double step) { return 500 + 10 * step; };
  EXPECT_EQ(find_growth({}), std::nullopt);
  EXPECT_EQ(find_growth(series(16, leak)), std::nullopt);
  EXPECT_TRUE(find_growth(series(17, leak)));
  EXPECT_EQ(find_growth(Series(40, {7, 500 << 20})), std::nullopt) << "all of one step";
}

TEST(MemoryGrowth, SamplesAreSpreadOverAllTime) {
  MemorySamples samples;
  auto now = Clock::time_point() + std::chrono::hours(1);
  int64_t num_taken = 0;
  for (int64_t step = 1; step <= 10'000; ++step, now += std::chrono::milliseconds(10)) {
    if (!samples.is_due(now)) continue;
    samples.add({step, 0}, now);
    ++num_taken;
  }
  EXPECT_LT(num_taken, 300);
  ASSERT_GE(samples.all().size(), MemorySamples::kMaxSamples / 2);
  ASSERT_LT(samples.all().size(), MemorySamples::kMaxSamples);
  const auto spacing = samples.all()[1].step - samples.all()[0].step;
  for (size_t i = 1; i < samples.all().size(); ++i) {
    EXPECT_EQ(samples.all()[i].step - samples.all()[i - 1].step, spacing) << i;
  }
}

TEST(MemoryGrowth, SaysWhichRankAndHowMuch) {
  MemoryGrowth growth{.rank = 2, .bytes_per_step = 1'300'000, .since = 4100, .bytes = int64_t{3} << 30};
  EXPECT_EQ(to_text(growth, 0, false), "memory of rank 2 grows by 1.2 MiB a step since step 4100, and is 3.0 GiB now");
  growth.is_of_device = true;
  EXPECT_EQ(
      to_text(growth, 3, true),
      "device memory of rank 2 grows by 1.2 MiB a step since step 4100, and is 3.0 GiB now; that of 3 other ranks "
      "grows, too; a cache that fills in the first epoch does so as well");
}

TEST(MemoryGrowth, IsSaidAgainOnlyIfItIsNews) {
  const MemoryGrowth one{.rank = 1, .bytes_per_step = 1000, .since = 7, .bytes = 1 << 30};
  EXPECT_TRUE(is_news(std::nullopt, one));
  auto now = one;
  now.bytes = 1'500'000'000;
  EXPECT_FALSE(is_news(one, now));
  now.bytes = 1'700'000'000;
  EXPECT_TRUE(is_news(one, now));
  now = one;
  now.rank = 0;
  EXPECT_TRUE(is_news(one, now));
}

TEST(MemoryGrowth, SeesTheMemoryOfThisProcess) {
  const auto before = anonymous_bytes();
  ASSERT_TRUE(before);
  constexpr size_t kSize = 64 << 20;
  auto* const memory = static_cast<char*>(std::malloc(kSize));
  std::memset(memory, 1, kSize);
  const auto with = anonymous_bytes();
  EXPECT_NEAR(static_cast<double>(*with - *before), kSize, 4 << 20) << memory[kSize / 2];
  std::free(memory);
  EXPECT_FALSE(allocated_bytes(c10::kCPU));
}

}  // namespace
}  // namespace yoke::train::detail

#include "yoke/tune/fit.h"

#include <gtest/gtest.h>

#include <vector>

namespace yoke::tune {
namespace {

TEST(TuneFit, FindsALine) {
  std::vector<Point> points;
  for (double batch = 1; batch <= 4096; batch *= 2) points.push_back({batch, 2e-3 + 3e-6 * batch});
  const auto line = fit_time(points);
  ASSERT_TRUE(line);
  EXPECT_NEAR(line->fixed, 2e-3, 1e-9);
  EXPECT_NEAR(line->per_sample, 3e-6, 1e-12);
}

TEST(TuneFit, OneSlowRunDoesNotMoveTheLine) {
  std::vector<Point> points;
  for (double batch = 16; batch <= 2048; batch *= 2) points.push_back({batch, 2e-3 + 3e-5 * batch});
  points[3].value *= 3;
  const auto line = fit_time(points);
  EXPECT_NEAR(line->fixed, 2e-3, 2e-4);
  EXPECT_NEAR(line->per_sample, 3e-5, 2e-6);
}

TEST(TuneFit, NeverHasNegativeParts) {
  const auto faster = fit_time(std::vector<Point>{{32, 0.02}, {64, 0.01}});
  EXPECT_GE(faster->per_sample, 0);
  const auto steep = fit_time(std::vector<Point>{{32, 0.01}, {64, 0.04}});
  EXPECT_GE(steep->fixed, 0);
}

TEST(TuneFit, NeedsTwoBatches) {
  EXPECT_FALSE(fit_time({}));
  EXPECT_FALSE(fit_time(std::vector<Point>{{32, 0.02}, {32, 0.01}}));
  EXPECT_FALSE(fit_memory({}));
}

TEST(TuneFit, OfMemoryIsCareful) {
  const auto one = fit_memory(std::vector<Point>{{32, 320}});
  EXPECT_DOUBLE_EQ(one->at(64), 640) << "all of it may grow with the batch";
  const auto line = fit_memory(std::vector<Point>{{32, 132}, {64, 164}, {128, 228}});
  EXPECT_NEAR(line->at(256), 356, 1e-9);
  const auto bent = fit_memory(std::vector<Point>{{32, 100}, {64, 101}, {128, 229}});
  EXPECT_GE(bent->at(256), 229 + 2 * 128) << "the last slope counts if it is the larger one";
  const auto shrinking = fit_memory(std::vector<Point>{{32, 300}, {64, 200}});
  EXPECT_DOUBLE_EQ(shrinking->at(1000), 200);
}

}  // namespace
}  // namespace yoke::tune

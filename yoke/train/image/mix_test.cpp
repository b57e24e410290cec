#include "yoke/train/image/mix.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/support/message_of.h"

namespace yoke::train {
namespace {

using ::testing::HasSubstr;

// The largest distance between the distribution of 20000 draws and the expected one (Kolmogorov and Smirnov). This
// distance is below 1.95 / sqrt(20000) = 0.0138 in 999 of 1000 runs. The seed is fixed.
double distance(double alpha, double (*expected)(double)) {
  constexpr size_t kCount = 20000;
  std::vector<double> draws(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    SampleRandom random(7, 0, static_cast<int64_t>(i));
    draws[i] = draw_beta(alpha, random);
  }
  std::sort(draws.begin(), draws.end());
  double largest = 0;
  for (size_t i = 0; i < kCount; ++i) {
    largest = std::max(largest, std::abs(expected(draws[i]) - (static_cast<double>(i) + 0.5) / kCount));
  }
  return largest;
}

TEST(DrawBeta, HasItsDistribution) {
  EXPECT_LT(distance(0.5, [](double x) { return 2 / M_PI * std::asin(std::sqrt(x)); }), 0.0138);
  EXPECT_LT(distance(1, [](double x) { return x; }), 0.0138);
  EXPECT_LT(distance(2, [](double x) { return x * x * (3 - 2 * x); }), 0.0138);
  EXPECT_LT(distance(3, [](double x) { return x * x * x * (10 - 15 * x + 6 * x * x); }), 0.0138);
  EXPECT_GT(distance(2, [](double x) { return x; }), 0.05) << "the test tells distributions apart";
}

// With a tiny alpha, draws are 0 or 1 with equal probability. Powers in the method's definition would be 0 in double
// precision.
TEST(DrawBeta, IsACoinForATinyAlpha) {
  int ones = 0;
  for (int i = 0; i < 1000; ++i) {
    SampleRandom random(1, 1, i);
    const double share = draw_beta(1e-4, random);
    ASSERT_TRUE(share >= 0 && share <= 1) << share;
    ones += share > 0.5;
  }
  EXPECT_NEAR(ones, 500, 60);
}

Batch plain_images(int64_t count) {
  return {at::arange(count, at::kFloat).view({count, 1, 1, 1}).expand({count, 3, 24, 32}).contiguous(),
          at::arange(count, at::kLong)};
}

// Image i is filled with the value i and has class i, so a pixel's value shows which images it comes from.
TEST(Mixup, MixesEachImageWithTheOneBefore) {
  const auto batch = plain_images(4);
  SampleRandom random(3, 0, 0), same(3, 0, 0);
  const auto mixed = mixup(batch, 5, 0.8, random);
  const double share = draw_beta(0.8, same);
  ASSERT_EQ(mixed.target.sizes(), (std::vector<int64_t>{4, 5}));
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t before = (i + 3) % 4;
    for (int64_t c = 0; c < 5; ++c) {
      const double expected = c == i ? share : c == before ? 1 - share : 0;
      EXPECT_NEAR(mixed.target[i][c].item<double>(), expected, 1e-6);
    }
    const double pixel = share * static_cast<double>(i) + (1 - share) * static_cast<double>(before);
    EXPECT_NEAR(mixed.data[i].sub(pixel).abs().max().item<double>(), 0, 1e-5);
  }
  EXPECT_TRUE(at::equal(batch.data, plain_images(4).data)) << "the batch itself is unchanged";
}

TEST(CutMix, TargetsAreTheSharesOfTheArea) {
  const auto batch = plain_images(3);
  double smallest = 1, largest = 0;
  for (int64_t i = 0; i < 200; ++i) {
    SampleRandom random(5, 0, i);
    const auto mixed = cutmix(batch, 3, 1.0, random);
    for (int64_t image = 0; image < 3; ++image) {
      const auto own = mixed.data[image].eq(static_cast<double>(image));
      const double share = own.to(at::kFloat).mean().item<double>();
      EXPECT_NEAR(mixed.target[image][image].item<double>(), share, 1e-6);
      EXPECT_NEAR(mixed.target[image][(image + 2) % 3].item<double>(), 1 - share, 1e-6);
      const auto other = mixed.data[image].eq(static_cast<double>((image + 2) % 3));
      EXPECT_TRUE(own.logical_or(other).all().item<bool>());
      // The other image's pixels form a rectangle, so their number is the product of its height and width.
      const auto cut = other[0];
      EXPECT_EQ(cut.sum().item<int64_t>(), cut.any(0).sum().item<int64_t>() * cut.any(1).sum().item<int64_t>());
      smallest = std::min(smallest, share);
      largest = std::max(largest, share);
    }
  }
  EXPECT_LT(smallest, 0.3);
  EXPECT_GT(largest, 0.9);
}

TEST(Mix, RefusesOtherBatches) {
  SampleRandom random(0, 0, 0);
  const auto batch = plain_images(2);
  const auto once = mixup(batch, 2, 1, random);
  EXPECT_THAT(test::message_of([&] { mixup(once, 2, 1, random); }), HasSubstr("int64 targets [B]"));
  EXPECT_THAT(test::message_of([&] {
                cutmix({batch.data.to(at::kByte), batch.target}, 2, 1, random);
              }),
              HasSubstr("floating-point images"));
  EXPECT_THAT(test::message_of([&] { mixup(batch, 2, 0, random); }), HasSubstr("not 2 and 0"));
}

}  // namespace
}  // namespace yoke::train

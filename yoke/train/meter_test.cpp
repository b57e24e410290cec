#include "yoke/train/meter.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fakes/run_ranks.h"
#include "yoke/base/error.h"

namespace yoke::train {
namespace {

at::Tensor scalar(double value, at::ScalarType dtype = at::kFloat) { return at::full({}, value, dtype); }

TEST(Meter, MeanIsThatOfAllSamplesWhateverTheBatches) {
  Mean mean;
  EXPECT_TRUE(std::isnan(mean.read()));
  mean.add(scalar(2), 6);
  mean.add(at::full({1, 1}, 5.0, at::kBFloat16), 2);
  mean.add(scalar(100), 0);
  mean.add(scalar(std::nan("")), 0);  // the mean of an empty batch
  EXPECT_DOUBLE_EQ(mean.read(), (2.0 * 6 + 5 * 2) / 8);
  EXPECT_EQ(mean.weight(), 8);
  mean.reset();
  EXPECT_TRUE(std::isnan(mean.read()));
}

// In float32 the sum would stop growing at 2^24.
TEST(Meter, SumsInFloat64) {
  Mean mean;
  mean.add(scalar(1), int64_t{1} << 24);
  for (int i = 0; i < 100; ++i) mean.add(scalar(2), 1);
  EXPECT_EQ(mean.sum().scalar_type(), at::kDouble);
  EXPECT_EQ(mean.sum().item<double>(), 16777416.0);
}

TEST(Meter, KeepsNoGraphAndNoReference) {
  Mean mean;
  auto loss = at::ones({}, at::TensorOptions(at::kDouble).requires_grad(true));
  mean.add(loss, 1);
  EXPECT_FALSE(mean.sum().requires_grad());
  loss.detach().fill_(7);
  EXPECT_EQ(mean.read(), 1);
}

TEST(Meter, AccuracyCountsTheLargestLogit) {
  const auto logits = at::tensor({1.0, 2.0, 0.0, 9.0, 1.0, 1.0, 3.0, 3.0, 0.0}).reshape({3, 3}).to(at::kBFloat16);
  Accuracy accuracy;
  accuracy.add(logits, at::tensor({1, 2, 0}, at::kLong));
  EXPECT_DOUBLE_EQ(accuracy.read(), 2.0 / 3);  // if logits are equal, the first one counts
  accuracy.add(logits, at::tensor({0, 1, 1}, at::kLong));
  EXPECT_DOUBLE_EQ(accuracy.read(), 2.0 / 6);
}

// Oracle: the cross-entropy of all tokens at once. Ranks and batches have different numbers of tokens, and some are
// ignored.
TEST(Meter, PerplexityIsThatOfAllTokensOfAllRanks) {
  constexpr int64_t kNumTokens = 30, kIgnored = -100;
  const auto logits = at::rand({kNumTokens, 7}).mul(5);
  const auto target = at::randint(0, 7, {kNumTokens}, at::kLong);
  target.narrow(0, 25, 3).fill_(kIgnored);
  const double expected =
      std::exp(at::cross_entropy_loss(logits, target, {}, at::Reduction::Mean, kIgnored).item<double>());
  fakes::run_ranks(2, [&](dist::World& world) {
    Perplexity perplexity;
    Mean unrelated;
    unrelated.add(scalar(3), 1);
    const std::vector<int64_t> bounds =
        world.rank() == 0 ? std::vector<int64_t>{0, 4, 20} : std::vector<int64_t>{20, 30};
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      const int64_t count = bounds[i + 1] - bounds[i];
      const auto part = target.narrow(0, bounds[i], count);
      perplexity.add(
          at::cross_entropy_loss(logits.narrow(0, bounds[i], count), part, {}, at::Reduction::Mean, kIgnored),
          part.ne(kIgnored).sum().item<int64_t>());
    }
    EXPECT_NEAR(perplexity.read(world), expected, 1e-4);
    const auto both = read_all(world, {&unrelated, &perplexity});
    EXPECT_EQ(both[0], 3);
    EXPECT_NEAR(both[1], expected, 1e-4);
    if (world.rank() == 1) {
      EXPECT_GT(std::abs(perplexity.read() - expected), 1e-3) << "this rank's alone";
    }
  });
  Perplexity empty;
  EXPECT_TRUE(std::isnan(empty.read()));
}

TEST(Meter, RefusesWhatDoesNotFit) {
  Mean mean;
  EXPECT_THROW(mean.add(at::zeros({2}), 1), Error);
  EXPECT_THROW(mean.add(scalar(1), -1), Error);
  Accuracy accuracy;
  EXPECT_THROW(accuracy.add(at::zeros({2, 3}), at::zeros({3}, at::kLong)), Error);
  EXPECT_THROW(accuracy.add(at::zeros({3}), at::zeros({3}, at::kLong)), Error);
  EXPECT_THROW(accuracy.add(at::zeros({2, 0}), at::zeros({2}, at::kLong)), Error);
  EXPECT_THROW(mean.load_state(at::Tensor()), Error);
  EXPECT_THROW(mean.load_state(at::zeros({2})), Error);
  EXPECT_THROW(mean.load_state(at::tensor({1.0, -1.0}, at::kDouble)), Error);
  EXPECT_THROW(mean.load_state(at::tensor({1.0, std::nan("")}, at::kDouble)), Error);
  EXPECT_THROW(mean.load_state(at::tensor({1.0, 1e300}, at::kDouble)), Error);
}

// Oracle: N ranks must report what one process reports for all samples.
TEST(Meter, RanksTogetherReportWhatOneProcessDoes) {
  fakes::run_ranks(3, [](dist::World& world) {
    Mean loss, unused;
    Accuracy accuracy;
    for (int64_t i = 0; i <= world.rank(); ++i) loss.add(scalar(static_cast<double>(10 * world.rank() + i)), i + 1);
    accuracy.add(at::tensor({0.0, 1.0}).reshape({1, 2}), at::full({1}, world.rank() == 0 ? 0 : 1, at::kLong));
    const auto figures = read_all(world, {&loss, &accuracy, &unused});
    // Values x weights. Rank 0: 0 x 1. Rank 1: 10 x 1, 11 x 2. Rank 2: 20 x 1, 21 x 2, 22 x 3.
    EXPECT_DOUBLE_EQ(figures.at(0), (10 + 22 + 20 + 42 + 66) / 10.0);
    EXPECT_DOUBLE_EQ(figures.at(1), 2.0 / 3);
    EXPECT_TRUE(std::isnan(figures.at(2)));
    EXPECT_DOUBLE_EQ(loss.read(world), figures[0]);
    EXPECT_TRUE(read_all(world, {}).empty());
    auto group = world.split(world.rank() == 0 ? 0 : 1);  // ranks 1 and 2
    EXPECT_DOUBLE_EQ(loss.read(group), world.rank() == 0 ? 0 : (10 + 22 + 20 + 42 + 66) / 9.0);
    EXPECT_EQ(gather_meters(group, {&loss}).size(1), group.size());
  });
}

// Oracle: an epoch that is interrupted and resumed, on any number of ranks, reports the figures of an uninterrupted
// one.
TEST(Meter, AResumedEpochReportsTheSame) {
  at::Tensor states;
  double uncut = 0;
  fakes::run_ranks(3, [&](dist::World& world) {
    Mean loss;
    Accuracy accuracy;
    loss.add(scalar(0.1 * static_cast<double>(world.rank() + 1)), 7);
    accuracy.add(at::ones({2, 1}), at::zeros({2}, at::kLong));
    const auto gathered = gather_meters(world, {&loss, &accuracy});
    EXPECT_EQ(gathered.sizes(), (std::vector<int64_t>{2, 3, 2}));
    loss.add(scalar(0.7), 3);
    const double mean = loss.read(world);
    if (world.rank() == 0) {
      states = gathered;
      uncut = mean;
    }
  });
  fakes::run_ranks(3, [&](dist::World& world) {
    Mean loss;
    Accuracy accuracy;
    restore_meters(world, {&loss, &accuracy}, states);
    EXPECT_EQ(accuracy.weight(), 2);
    loss.add(scalar(0.7), 3);
    EXPECT_EQ(loss.read(world), uncut);
    EXPECT_THROW(restore_meters(world, {&loss}, states), Error);
  });
  fakes::run_ranks(2, [&](dist::World& world) {
    Mean loss;
    Accuracy accuracy;
    restore_meters(world, {&loss, &accuracy}, states);
    if (world.rank() == 0) loss.add(scalar(0.7), 9);
    EXPECT_NEAR(loss.read(world), uncut, 1e-7);
    EXPECT_EQ(accuracy.read(world), 1);
  });
}

TEST(TopAccuracy, CountsTargetsAmongTheLargest) {
  const auto logits = at::tensor({0.1, 0.9, 0.5, 0.7, 0.2, 0.1, 0.3, 0.2, 0.1}).view({3, 3});
  const auto target = at::tensor({2, 2, 0}, at::kLong);
  for (const auto& [k, expected] : std::vector<std::pair<int64_t, double>>{{1, 1 / 3.0}, {2, 2 / 3.0}, {5, 1.0}}) {
    TopAccuracy accuracy(k);
    accuracy.add(logits, target);
    EXPECT_DOUBLE_EQ(accuracy.read(), expected) << k;
  }
  EXPECT_THROW(TopAccuracy(0), Error);
}

}  // namespace
}  // namespace yoke::train

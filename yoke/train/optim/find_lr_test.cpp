#include "yoke/train/optim/find_lr.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "fakes/run_ranks.h"
#include "tests/support/message_of.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/parallel/distributed_data_parallel.h"

namespace yoke::train {
namespace {

using test::message_of;
using ::testing::HasSubstr;

torch::nn::Sequential make_model() {
  return fakes::make_seeded(0, [] {
    torch::nn::Sequential model;
    model->push_back(torch::nn::Linear(4, 8));
    model->push_back(torch::nn::BatchNorm1d(8));
    model->push_back(torch::nn::Linear(8, 1));
    return model;
  });
}

TensorMap values_of(torch::nn::Sequential& model, const Optimizer& optimizer) {
  TensorMap values;
  for (const auto& [name, tensor] : model->named_parameters().pairs()) values.emplace(name, tensor.detach().clone());
  for (const auto& [name, tensor] : model->named_buffers().pairs()) values.emplace(name, tensor.clone());
  for (const auto& [name, tensor] : optimizer.state_dict()) values.emplace("state." + name, tensor.clone());
  return values;
}

void expect_equal(const TensorMap& a, const TensorMap& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
}

// Oracle: the same loop computed by hand on a parabola of curvature 1: w <- w - lr w, loss w * w / 2.
TEST(FindLr, RaisesTheRateAndSmoothsTheLoss) {
  dist::World world;
  const auto w = at::ones({1}).requires_grad_();
  Sgd optimizer({{"w", w}}, {.lr = 0.5});
  const FindLrOptions options{.min_lr = 1e-3, .max_lr = 1, .num_steps = 31, .smoothing = 0.5, .num_skipped = 2};
  const auto curve = find_lr(
      world, NamedTensors{{"w", w}}, optimizer, [&] { return w.square().sum() / 2; }, options);
  ASSERT_EQ(curve.lrs.size(), 31u);
  ASSERT_EQ(curve.losses.size(), 31u);
  EXPECT_FALSE(curve.has_diverged);
  double value = 1, running = 0;
  for (size_t i = 0; i < 31; ++i) {
    EXPECT_NEAR(std::log10(curve.lrs[i]), -3 + 0.1 * static_cast<double>(i), 1e-9);
    running = 0.5 * running + 0.5 * value * value / 2;
    EXPECT_NEAR(curve.losses[i], running / (1 - std::pow(0.5, static_cast<double>(i + 1))), 1e-5) << i;
    value -= curve.lrs[i] * value;
  }
  // No other rate has a steeper slope between its neighbours.
  ASSERT_TRUE(curve.suggestion);
  double steepest = 0, at_suggestion = 0;
  for (size_t i = 2; i + 1 < 31; ++i) {
    const double slope = (curve.losses[i + 1] - curve.losses[i - 1]) / std::log(curve.lrs[i + 1] / curve.lrs[i - 1]);
    steepest = std::min(steepest, slope);
    if (curve.lrs[i] == *curve.suggestion) at_suggestion = slope;
  }
  EXPECT_LT(steepest, 0);
  EXPECT_NEAR(at_suggestion, steepest, 1e-9);
  EXPECT_EQ(w.item<float>(), 1);
  EXPECT_FALSE(w.grad().defined());
  EXPECT_EQ(optimizer.lr(), 0.5);
}

// On a parabola of curvature 1, training diverges at rates of 2 and more.
TEST(FindLr, StopsWhereTheLossDiverges) {
  dist::World world;
  const auto w = at::ones({1}).requires_grad_();
  Sgd optimizer({{"w", w}});
  int num_calls = 0;
  const auto loss = [&] {
    ++num_calls;
    return w.square().sum() / 2;
  };
  const auto curve = find_lr(world, NamedTensors{{"w", w}}, optimizer, loss, {.max_lr = 1e6});
  EXPECT_TRUE(curve.has_diverged);
  EXPECT_LT(num_calls, 100);
  EXPECT_EQ(curve.lrs.size(), static_cast<size_t>(num_calls) - 1);
  ASSERT_TRUE(curve.suggestion);
  EXPECT_GT(*curve.suggestion, 1e-3);
  EXPECT_LT(*curve.suggestion, 2);
  EXPECT_EQ(w.item<float>(), 1);

  const auto nothing = find_lr(world, NamedTensors{{"w", w}}, optimizer,
                               [&] { return w.sum() * std::numeric_limits<double>::quiet_NaN(); });
  EXPECT_TRUE(nothing.has_diverged);
  EXPECT_TRUE(nothing.lrs.empty());
  EXPECT_FALSE(nothing.suggestion);
}

// Oracle: the training without the search, on two ranks, with batch norm and with Adam's moments after some steps.
TEST(FindLr, LeavesTheTrainingAsItWas) {
  fakes::run_ranks(2, [](dist::World& world) {
    auto model = make_model(), twin = make_model();
    const auto x = fakes::make_seeded(1, [] { return at::randn({16, 4}); }), y = x.sum(1, true);
    DistributedDataParallel net(model, world), twin_net(twin, world);
    AdamW optimizer(net, {.lr = 0.01}), twin_optimizer(twin_net, {.lr = 0.01});
    const auto train = [&](auto& network, AdamW& of, int num_steps) {
      for (int step = 0; step < num_steps; ++step) {
        of.zero_grad();
        at::mse_loss(network(x), y).backward();
        of.step();
      }
    };
    train(net, optimizer, 3);
    train(twin_net, twin_optimizer, 3);
    const auto before = values_of(model, optimizer);
    const auto curve = find_lr(world, net, optimizer, [&] { return at::mse_loss(net(x), y); }, {.max_lr = 1e4});
    EXPECT_TRUE(curve.has_diverged);
    expect_equal(values_of(model, optimizer), before);
    EXPECT_EQ(optimizer.lr(), 0.01);
    train(net, optimizer, 3);
    train(twin_net, twin_optimizer, 3);
    expect_equal(values_of(model, optimizer), values_of(twin, twin_optimizer));
  });
}

// Only rank 1's loss explodes. Both ranks stop, with the same curve.
TEST(FindLr, IsTheSameOnAllRanks) {
  std::vector<LrCurve> curves(2);
  fakes::run_ranks(2, [&](dist::World& world) {
    const auto w = at::ones({1}).requires_grad_();
    Sgd optimizer({{"w", w}});
    const double curvature = world.rank() == 0 ? 1e-3 : 1e3;
    curves[static_cast<size_t>(world.rank())] =
        find_lr(world, NamedTensors{{"w", w}}, optimizer, [&] { return w.square().sum() * curvature; });
  });
  EXPECT_TRUE(curves[0].has_diverged);
  EXPECT_EQ(curves[0].lrs, curves[1].lrs);
  EXPECT_EQ(curves[0].losses, curves[1].losses);
  EXPECT_EQ(curves[0].suggestion, curves[1].suggestion);
}

TEST(FindLr, PutsBackWhatItChangedWhereALossThrows) {
  dist::World world;
  const auto w = at::ones({1}).requires_grad_();
  Sgd optimizer({{"w", w}}, {.lr = 0.5});
  int num_calls = 0;
  const auto loss = [&]() -> at::Tensor {
    if (++num_calls == 60) throw std::runtime_error("no more data");
    return w.square().sum();
  };
  EXPECT_THROW(find_lr(world, NamedTensors{{"w", w}}, optimizer, loss), std::runtime_error);
  EXPECT_EQ(w.item<float>(), 1);
  EXPECT_EQ(optimizer.lr(), 0.5);
}

TEST(FindLr, RefusesOptionsByName) {
  dist::World world;
  const auto w = at::ones({1}).requires_grad_();
  Sgd optimizer({{"w", w}});
  const auto refusal = [&](const FindLrOptions& options) {
    return message_of([&] {
      find_lr(
          world, NamedTensors{{"w", w}}, optimizer, [&] { return w.sum(); }, options);
    });
  };
  EXPECT_THAT(refusal({.min_lr = 0}), HasSubstr("min_lr 0"));
  EXPECT_THAT(refusal({.min_lr = 1, .max_lr = 1}), HasSubstr("below max_lr 1"));
  EXPECT_THAT(refusal({.num_steps = 1}), HasSubstr("num_steps 1"));
  EXPECT_THAT(refusal({.smoothing = 1}), HasSubstr("smoothing 1"));
  EXPECT_THAT(refusal({.divergence = 1}), HasSubstr("divergence 1"));
  EXPECT_THAT(refusal({.num_skipped = -1}), HasSubstr("num_skipped -1"));
}

}  // namespace
}  // namespace yoke::train

// parity_test.cpp compares clipping and averages with PyTorch's figures; this file tests the rest of their contracts.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/optim/ema.h"

namespace yoke::train {
namespace {

using test::message_of;
using ::testing::HasSubstr;

at::Tensor parameter_with(const at::Tensor& gradient) {
  const auto parameter = at::zeros(gradient.sizes(), gradient.options()).requires_grad_();
  parameter.mutable_grad() = gradient;
  return parameter;
}

// Gradients of 3, 4 and 12, whose norm is 13. The gradients have two dtypes, so clipping makes two foreach lists.
NamedTensors three() {
  return {{"a", parameter_with(at::full({1}, 3.0, at::kFloat))},
          {"none", at::zeros({2}).requires_grad_()},
          {"b", parameter_with(at::full({1}, 4.0, at::kDouble))},
          {"c", parameter_with(at::full({1}, -12.0, at::kFloat))}};
}

// Earlier versions averaged the trained parameters of a DistributedDataParallel alone.
TEST(Ema, AFrozenParameterNeedsNoAverageInAState) {
  const auto trained = at::zeros({2}).requires_grad_(), frozen = at::zeros({2});
  ExponentialMovingAverage old(NamedTensors{{"trained", trained}}, {}, {.decay = 0.5});
  old.update();
  const auto state = old.state_dict();
  ExponentialMovingAverage now(NamedTensors{{"trained", trained}, {"frozen", frozen}}, {}, {.decay = 0.5});
  now.load_state_dict(state);
  frozen.fill_(3);  // the parameters of a checkpoint may be loaded after the averages
  EXPECT_TRUE(at::equal(now.state_dict().at("average.frozen"), at::full({2}, 3.0)));
  frozen.fill_(5);
  now.update();
  EXPECT_TRUE(at::equal(now.averages()[1].second, at::full({2}, 4.0)));
  frozen.requires_grad_();
  EXPECT_THAT(message_of([&] { now.load_state_dict(state); }), HasSubstr("the state lacks 'average.frozen'"));
}

TEST(ClipGradNorm, ScalesAllTogether) {
  const auto parameters = three();
  EXPECT_NEAR(clip_grad_norm(parameters, {.max_norm = 6.5}).item<double>(), 13, 1e-5);
  EXPECT_NEAR(parameters[0].second.grad().item<double>(), 1.5, 1e-5);
  EXPECT_NEAR(parameters[2].second.grad().item<double>(), 2, 1e-5);
  EXPECT_NEAR(parameters[3].second.grad().item<double>(), -6, 1e-5);
  EXPECT_FALSE(parameters[1].second.grad().defined());
  EXPECT_NEAR(clip_grad_norm(parameters, {.max_norm = 100}).item<double>(), 6.5, 1e-5);
  EXPECT_NEAR(parameters[3].second.grad().item<double>(), -6, 1e-5) << "gradients within bounds were scaled";
  EXPECT_EQ(clip_grad_norm({}, {.max_norm = 1}).item<double>(), 0);
}

TEST(Norms, AreThoseOfParametersAndOfGradients) {
  auto parameters = three();
  {
    const at::NoGradGuard no_grad;
    for (const auto& [name, parameter] : parameters) parameter.fill_(2);
  }
  parameters.push_back(parameters[0]);  // one parameter appears twice, because it is tied
  const auto both = norms(parameters);
  EXPECT_NEAR(both.gradients.item<double>(), 13, 1e-5);
  EXPECT_NEAR(both.parameters.item<double>(), std::sqrt(5 * 4.0), 1e-5) << "one without a gradient counts";
  EXPECT_NEAR(norms(parameters, std::numeric_limits<double>::infinity()).gradients.item<double>(), 12, 1e-5);
  EXPECT_FALSE(both.parameters.requires_grad());
  EXPECT_EQ(norms({}).parameters.item<double>(), 0);
}

// Each of two ranks has half of the gradients. The halves are clipped by their combined norm, as in one process.
TEST(ClipGradNorm, ComesInHalvesForShardedGradients) {
  const auto whole = three(), sharded = three();
  clip_grad_norm(whole, {.max_norm = 1});
  const NamedTensors first{sharded[0]}, second{sharded[2], sharded[3]};
  const auto norm = grad_norm(first).square().add(grad_norm(second).square()).sqrt();
  scale_grads_to_norm(first, 1, norm);
  scale_grads_to_norm(second, 1, norm);
  for (size_t i : {0u, 2u, 3u}) EXPECT_TRUE(at::allclose(whole[i].second.grad(), sharded[i].second.grad()));
}

TEST(ClipGradNorm, RefusesWhatItCannotClip) {
  const auto infinite = parameter_with(at::full({2}, std::numeric_limits<float>::infinity()));
  const auto fine = parameter_with(at::ones({2}));
  const NamedTensors parameters{{"fine", fine}, {"infinite", infinite}};
  EXPECT_THAT(message_of([&] { clip_grad_norm(parameters, {.max_norm = 1, .error_if_nonfinite = true}); },
                         ErrorCode::kFailedPrecondition),
              HasSubstr("norm is inf"));
  EXPECT_TRUE(at::equal(fine.grad(), at::ones({2})));
  EXPECT_THAT(message_of([&] { clip_grad_norm(parameters, {}); }), HasSubstr("max_norm 0"));
  EXPECT_THAT(message_of([&] { clip_grad_norm(parameters, {.max_norm = 1, .norm_type = 0}); }), HasSubstr("norm_type"));
  EXPECT_THAT(message_of([&] { clip_grad_value(parameters, -1); }), HasSubstr("max_value -1"));
  fine.mutable_grad() = at::sparse_coo_tensor(at::tensor({int64_t{1}}).view({1, 1}), at::ones({1}), {2});
  EXPECT_THAT(message_of([&] { clip_grad_norm(parameters, {.max_norm = 1}); }), HasSubstr("'fine' is sparse"));
}

// The tied parameter counts once: the norm of 3 and 4 is 5, not that of 3, 3 and 4.
TEST(ClipGradNorm, TakesATiedParameterOnce) {
  const auto tied = parameter_with(at::full({1}, 3.0)), other = parameter_with(at::full({1}, 4.0));
  const NamedTensors parameters{{"embedding", tied}, {"other", other}, {"head", tied}};
  EXPECT_NEAR(clip_grad_norm(parameters, {.max_norm = 2.5}).item<double>(), 5, 1e-6);
  EXPECT_NEAR(tied.grad().item<double>(), 1.5, 1e-6);
  EXPECT_NEAR(other.grad().item<double>(), 2, 1e-6);
}

TEST(ClipGradValue, BoundsEveryElement) {
  const auto parameter = parameter_with(at::tensor({-3.0, -0.5, 0.25, 7.0}));
  clip_grad_value({{"w", parameter}}, 0.5);
  EXPECT_TRUE(at::equal(parameter.grad(), at::tensor({-0.5, -0.5, 0.25, 0.5})));
}

struct Model {
  at::Tensor weight = at::zeros({2}).requires_grad_(), mean = at::zeros({2}), count = at::zeros({}, at::kLong);
  NamedTensors parameters() const { return {{"weight", weight}}; }
  NamedTensors buffers() const { return {{"mean", mean}, {"count", count}}; }
  void set(double value) {
    weight.detach().fill_(value);
    mean.fill_(value);
    count.fill_(static_cast<int64_t>(value));
  }
};

at::Tensor average_of(const ExponentialMovingAverage& ema, size_t i) { return ema.averages()[i].second; }

TEST(ExponentialMovingAverage, AveragesParametersAndCopiesBuffers) {
  Model model;
  ExponentialMovingAverage ema(model.parameters(), model.buffers(), {.decay = 0.75});
  model.set(4);
  ema.update();  // the first update copies the parameters
  EXPECT_EQ(average_of(ema, 0)[0].item<double>(), 4);
  model.set(8);
  ema.update();
  EXPECT_EQ(average_of(ema, 0)[1].item<double>(), 5);
  EXPECT_EQ(average_of(ema, 1)[0].item<double>(), 8);
  EXPECT_EQ(average_of(ema, 2).item<int64_t>(), 8);

  ExponentialMovingAverage all(model.parameters(), model.buffers(), {.decay = 0.75, .average_buffers = true});
  all.update();
  model.set(12);
  all.update();
  EXPECT_EQ(average_of(all, 1)[0].item<double>(), 9);
  EXPECT_EQ(average_of(all, 2).item<int64_t>(), 12) << "integers are copied";
}

TEST(ExponentialMovingAverage, AveragesComplexNumbers) {
  const auto value = at::full({2}, 4, at::kComplexFloat);
  ExponentialMovingAverage ema({{"value", value}}, {}, {.decay = 0.75});
  ema.update();
  value.fill_(8);
  ema.update();
  EXPECT_TRUE(at::equal(average_of(ema, 0), at::full({2}, 5, at::kComplexFloat)));
}

TEST(ExponentialMovingAverage, WarmsUp) {
  Model model;
  ExponentialMovingAverage ema(model.parameters(), {}, {.decay = 0.9, .warm_up = true});
  double expected = 0;
  for (int n = 0; n < 200; ++n) {
    model.set(n);
    ema.update();
    const double decay = std::min(0.9, (1.0 + n) / (10.0 + n));
    expected = n == 0 ? 0 : decay * expected + (1 - decay) * n;
    EXPECT_NEAR(average_of(ema, 0)[0].item<double>(), expected, 1e-4) << n;
  }
}

TEST(ExponentialMovingAverage, SwapsInForAScope) {
  Model model;
  ExponentialMovingAverage ema(model.parameters(), model.buffers(), {.decay = 0.5});
  model.set(2);
  ema.update();
  model.set(4);
  const void* const memory = model.weight.data_ptr();
  {
    const auto swapped = ema.swap_in();
    EXPECT_EQ(model.weight[0].item<double>(), 2);
    EXPECT_EQ(model.mean[0].item<double>(), 2);
    EXPECT_EQ(model.weight.data_ptr(), memory) << "optimizers and replicas hold this memory";
    EXPECT_THAT(message_of([&] { ema.update(); }, ErrorCode::kFailedPrecondition), HasSubstr("swapped in"));
    EXPECT_THAT(message_of([&] { ema.state_dict(); }, ErrorCode::kFailedPrecondition), HasSubstr("swapped in"));
  }
  EXPECT_EQ(model.weight[0].item<double>(), 4);
  EXPECT_EQ(model.mean[0].item<double>(), 4);
  ema.update();
  EXPECT_EQ(average_of(ema, 0)[0].item<double>(), 3);
}

TEST(ExponentialMovingAverage, ResumesFromItsState) {
  Model model, again;
  const EmaOptions options{.decay = 0.9, .warm_up = true};
  ExponentialMovingAverage whole(model.parameters(), model.buffers(), options);
  ExponentialMovingAverage resumed(again.parameters(), again.buffers(), options);
  for (int n = 0; n < 20; ++n) {
    model.set(n * n);
    again.set(n * n);
    whole.update();
    if (n == 9) resumed.load_state_dict(whole.state_dict());
    if (n > 9) resumed.update();
  }
  EXPECT_EQ(resumed.num_updates(), 20);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(average_of(whole, i), average_of(resumed, i)));

  const auto load = [&](TensorMap state) { return message_of([&] { resumed.load_state_dict(state); }); };
  auto state = whole.state_dict();
  state.erase("average.mean");
  EXPECT_THAT(load(state), HasSubstr("lacks 'average.mean'"));
  state = whole.state_dict();
  state["average.weight"] = at::ones({3});
  EXPECT_THAT(load(state), HasSubstr("'average.weight' is Float [3], the tensor Float [2]"));
  state = whole.state_dict();
  state["average.other"] = at::ones({3});
  EXPECT_THAT(load(state), HasSubstr("'average.other' belongs to no tensor"));
}

TEST(ExponentialMovingAverage, TakesATiedTensorOnce) {
  Model model;
  ExponentialMovingAverage ema({{"embedding", model.weight}, {"head", model.weight}}, {{"mean", model.mean}});
  EXPECT_EQ(ema.averages().size(), 2u);
  model.set(2);
  ema.update();
  model.set(4);
  {
    const auto swapped = ema.swap_in();
    EXPECT_EQ(model.weight[0].item<double>(), 2);
  }
  EXPECT_EQ(model.weight[0].item<double>(), 4) << "the training's own value is lost";
}

TEST(ExponentialMovingAverage, FollowsATensorWhoseMemoryMoves) {
  Model model;
  ExponentialMovingAverage ema(model.parameters(), model.buffers(), {.decay = 0.5});
  model.weight.set_data(at::zeros({8}).narrow(0, 2, 2));  // new memory, as from a sharded optimizer
  model.set(2);
  ema.update();
  model.set(4);
  ema.update();
  EXPECT_EQ(average_of(ema, 0)[0].item<double>(), 3);
  const auto swapped = ema.swap_in();
  EXPECT_EQ(model.weight[0].item<double>(), 3);
}

TEST(ExponentialMovingAverage, RefusesTensorsThatHaveBecomeOthers) {
  for (const auto& other : {at::zeros({2}, at::kDouble), at::zeros({0})}) {
    Model model;
    ExponentialMovingAverage ema(model.parameters(), model.buffers());
    model.weight.set_data(other);
    const auto update = [&] { ema.update(); };
    const auto swap_in = [&] { const auto swapped = ema.swap_in(); };
    EXPECT_THAT(message_of(update, ErrorCode::kFailedPrecondition), HasSubstr("'weight' is "));
    EXPECT_THAT(message_of(swap_in, ErrorCode::kFailedPrecondition), HasSubstr("'weight' is "));
    EXPECT_EQ(ema.num_updates(), 0);
  }
  EXPECT_THAT(message_of([] {
                ExponentialMovingAverage({{"freed", at::zeros({0})}}, {});
              }),
              HasSubstr("'freed' has no elements"));
}

TEST(ExponentialMovingAverage, RefusesBadArguments) {
  Model model;
  EXPECT_THAT(message_of([&] { ExponentialMovingAverage(model.parameters(), {}, {.decay = 1.5}); }),
              HasSubstr("decay 1.5"));
  EXPECT_THAT(message_of([&] { ExponentialMovingAverage(model.parameters(), model.parameters()); }),
              HasSubstr("two tensors named 'weight'"));
}

}  // namespace
}  // namespace yoke::train

// What a program is told of its recorded step.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "yoke/train/optim/sgd.h"
#include "yoke/train/precision/autocast.h"
#include "yoke/train/recompute.h"
#include "yoke/train/record/recorded.h"
#include "yoke/train/record/small_step_test.h"
#include "yoke/train/seed.h"

namespace yoke::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace nn = torch::nn;

TEST(RecordedMessages, NameTheTensorThatWasReplaced) {
  for (const bool has_modules : {false, true}) {
    Small small({.check = false});
    nn::Sequential net(nn::Linear(3, 2), nn::Linear(2, 1));
    if (has_modules) small.options.modules = {*net};
    auto factor = at::full({5, 1}, 2.0);
    Recorded recorded(
        [&](const at::Tensor& x) {
          const at::NoGradGuard no_grad;
          return net->forward(x) * factor;
        },
        small.options);
    for (int i = 0; i < 40; ++i) {
      if (i == 10) net->ptr<nn::LinearImpl>(1)->weight.set_data(at::randn({1, 2}));
      if (i == 20) factor = at::full({5, 1}, 3.0);
      recorded(at::randn({5, 3}));
    }
    EXPECT_THAT(small.warnings, ElementsAre(AllOf(HasSubstr("Float [1, 2], was replaced by another one"),
                                                  HasSubstr(has_modules ? "uses, '1.weight', " : "uses, Float")),
                                            HasSubstr("a tensor that the step uses, Float [5, 1], was replaced")));
  }
}

/// Trains with the recorded function and with the function itself, and returns the warnings.
std::vector<std::string> warnings_of(
    const std::function<at::Tensor(nn::Sequential& net, Sgd& optimizer, const at::Tensor& x)>& recorded_part,
    const std::function<void(nn::Sequential& net, Sgd& optimizer, int step)>& after) {
  std::vector<std::vector<at::Tensor>> all;
  Small small;
  for (const bool is_recorded : {false, true}) {
    seed({.seed = 3});
    nn::Sequential net(nn::Linear(3, 4), nn::Linear(4, 1));
    Sgd optimizer(*net, {.lr = 0.1});
    const auto step = [&](const at::Tensor& x) { return recorded_part(net, optimizer, x); };
    Recorded recorded(step, small.options);
    all.emplace_back();
    for (int i = 0; i < 60; ++i) {
      const auto x = at::randn({5, 3});
      all.back().push_back((is_recorded ? recorded(x) : step(x)).detach());
      after(net, optimizer, i);
    }
    if (!is_recorded) continue;
    EXPECT_GE(recorded.num_replays(), 50);
    EXPECT_THAT(recorded.why_not(), IsEmpty());
  }
  for (size_t i = 0; i < all[0].size(); ++i) EXPECT_TRUE(same_bits(all[0][i], all[1][i])) << i;
  return small.warnings;
}

at::Tensor backward(nn::Sequential& net, const at::Tensor& x) {
  const auto loss = net->forward(x).square().mean();
  loss.backward();
  return loss;
}

TEST(RecordedMessages, SayNothingOfGradientsThatAccumulateAroundTheStep) {
  for (const int num_batches : {2, 3}) {
    EXPECT_THAT(warnings_of([](nn::Sequential& net, Sgd&, const at::Tensor& x) { return backward(net, x); },
                            [&](nn::Sequential&, Sgd& optimizer, int step) {
                              if (step % num_batches > 0) return;
                              optimizer.step();
                              optimizer.zero_grad();
                            }),
                IsEmpty());
  }
}

// zero_grad(false) gives each parameter another tensor over the memory of its gradient.
TEST(RecordedMessages, SayNothingOfGradientsThatBecomeZero) {
  EXPECT_THAT(warnings_of(
                  [](nn::Sequential& net, Sgd& optimizer, const at::Tensor& x) {
                    optimizer.zero_grad();
                    const auto loss = backward(net, x);
                    optimizer.step();
                    return loss;
                  },
                  [&](nn::Sequential& net, Sgd&, int step) {
                    if (step % 3 == 0) net->zero_grad(/*set_to_none=*/false);
                  }),
              IsEmpty());
}

TEST(RecordedMessages, NameAutocastAroundTheCall) {
  Small small;
  nn::Linear layer(3, 1);
  Recorded recorded([&](const at::Tensor& x) { return layer(x).detach(); }, small.options);
  for (int i = 0; i < 5; ++i) recorded(at::randn({4, 3}));
  EXPECT_THAT(recorded.why_not(), IsEmpty());
  const Autocast autocast({.device_type = at::kCPU});
  for (int i = 0; i < 5; ++i) recorded(at::randn({4, 3}));
  EXPECT_THAT(recorded.why_not(), AllOf(HasSubstr("Autocast is on around"), HasSubstr("open it in the step")));
}

TEST(RecordedMessages, NameAutocastAroundTheFirstCall) {
  Small small;
  nn::Linear layer(3, 1);
  Recorded recorded([&](const at::Tensor& x) { return layer(x).detach(); }, small.options);
  const Autocast autocast({.device_type = at::kCPU});
  recorded(at::randn({4, 3}));
  EXPECT_THAT(recorded.why_not(), HasSubstr("open it in the step"));
}

TEST(RecordedMessages, NameRecomputeOfDropout) {
  for (const double rate : {0.0, 0.5}) {
    Small small;
    const auto function = [&](const at::Tensor& x) {
      const auto y = x * small.weight;
      return rate > 0 ? at::dropout(y, rate, true) : y.sin();
    };
    const auto why_not = small.why_not([&](const at::Tensor& x) {
      small.weight.mutable_grad().reset();
      const auto loss = recompute(function, x).sum();
      loss.backward();
      return loss;
    });
    EXPECT_THAT(why_not, HasSubstr(rate > 0 ? "recompute was called with a function that draws" : ""));
    EXPECT_EQ(why_not.empty(), rate == 0) << why_not;
  }
}

TEST(RecordedMessages, NameRecomputeWithinANetwork) {
  Small small;
  const auto why_not = small.why_not([&](const at::Tensor& x) {
    small.weight.mutable_grad().reset();
    const auto loss = recompute([](const at::Tensor& y) { return y.sin(); }, x * small.weight).sum();
    loss.backward();
    return loss;
  });
  EXPECT_THAT(why_not, HasSubstr("recompute was called with an input that needs a gradient"));
}

TEST(RecordedMessages, NameAForwardWithoutBackward) {
  Small small;
  Recorded recorded([&](const at::Tensor& x) { return (x * small.weight).sum(); }, small.options);
  EXPECT_FALSE(recorded(at::randn({4, 3})).requires_grad());
  EXPECT_THAT(small.warnings,
              ElementsAre(AllOf(HasSubstr("result 0 of the step has a graph"), HasSubstr("backward() in the step"))));
  for (int i = 0; i < 10; ++i) recorded(at::randn({4, 3}));
  EXPECT_EQ(small.warnings.size(), 1);
}

}  // namespace
}  // namespace yoke::train

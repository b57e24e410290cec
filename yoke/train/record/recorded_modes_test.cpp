// Modes of modules that a recorded step knows, and comparisons that the program asks for.
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/train/optim/sgd.h"
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

struct Layers {
  nn::Linear first{4, 8}, last{8, 2};
  nn::Dropout dropout{0.3};
  nn::BatchNorm1d norm{8};
  nn::Sequential all{first, norm, dropout, last};
};

/// Losses and the sum of all tensors of 40 steps, with `change` before each of them.
std::vector<at::Tensor> train_with(const std::function<void(int step, Layers& layers)>& change, bool is_recorded,
                                   int64_t recordings, Small&& small = Small({.check = false})) {
  seed({.seed = 5});
  Layers layers;
  Sgd optimizer(*layers.all, {.lr = 0.1});
  const auto step = [&](const at::Tensor& x) {
    optimizer.zero_grad();
    const auto loss = layers.all->forward(x).square().mean();
    loss.backward();
    optimizer.step();
    return loss;
  };
  small.options.modules = {*layers.all};
  Recorded recorded(step, small.options);
  std::vector<at::Tensor> all;
  for (int i = 0; i < 40; ++i) {
    change(i, layers);
    const auto x = at::randn({6, 4});
    all.push_back((is_recorded ? recorded(x) : step(x)).detach());
  }
  for (const auto& buffer : layers.all->buffers()) all.push_back(buffer);
  if (is_recorded) {
    EXPECT_EQ(recorded.num_recordings(), recordings);
    EXPECT_EQ(recorded.num_replays(), 38 - recordings);
    EXPECT_THAT(recorded.why_not(), IsEmpty());
    EXPECT_THAT(small.warnings, IsEmpty());
  }
  return all;
}

void expect_the_same(const std::function<void(int step, Layers& layers)>& change, int64_t recordings) {
  const auto plain = train_with(change, false, recordings), replayed = train_with(change, true, recordings);
  ASSERT_EQ(plain.size(), replayed.size());
  for (size_t i = 0; i < plain.size(); ++i) ASSERT_TRUE(same_bits(plain[i], replayed[i])) << i;
}

TEST(RecordedModes, HaveAPlanEach) {
  expect_the_same([](int, Layers&) {}, 1);
  // The whole network, as around an evaluation.
  expect_the_same([](int step, Layers& layers) { layers.all->train(step % 10 < 5); }, 2);
  // One layer, for the rest of the training.
  expect_the_same([](int step, Layers& layers) { layers.norm->train(step < 20); }, 2);
}

TEST(RecordedModes, AreAlsoNumbersOfLayers) {
  expect_the_same([](int step, Layers& layers) { layers.dropout->options.p(step < 20 ? 0.3 : 0.1); }, 2);
  expect_the_same([](int step, Layers& layers) { layers.norm->options.momentum(step < 15 ? 0.1 : 0.5); }, 2);
}

// A module that a step switches itself is in the same mode before each call, or the call runs the step.
TEST(RecordedModes, MayBeSetInTheStep) {
  seed({.seed = 5});
  Layers layers;
  const auto step = [&](const at::Tensor& x) {
    layers.all->train();
    return layers.all->forward(x).detach();
  };
  Small small({.check = false});
  small.options.modules = {*layers.all};
  Recorded recorded(step, small.options);
  for (int i = 0; i < 20; ++i) {
    if (i % 10 == 9) layers.all->eval();
    recorded(at::randn({6, 4}));
    EXPECT_TRUE(layers.dropout->is_training()) << i;
  }
  EXPECT_EQ(recorded.num_recordings(), 1);
  EXPECT_EQ(recorded.num_replays(), 15);
  EXPECT_THAT(small.warnings, ElementsAre(HasSubstr("train() or eval()")));
}

// A module that is gone is not asked.
TEST(RecordedModes, MayLoseModules) {
  seed({.seed = 5});
  struct Whole : nn::Module {
    Whole() { register_module("part", part); }
    nn::Dropout part{0.5};
  } whole;
  Small small({.check = false});
  small.options.modules = {whole};
  Recorded recorded([&](const at::Tensor& x) { return whole.part(x); }, small.options);
  for (int i = 0; i < 20; ++i) {
    if (i == 10) whole.part = whole.replace_module("part", nn::Dropout(0.0));
    const auto x = at::randn({64});
    EXPECT_EQ(same_bits(recorded(x), x), i >= 10) << i;
  }
  EXPECT_EQ(recorded.num_recordings(), 2);
}

TEST(RecordedModes, WithoutThemAProgramAsksForAComparison) {
  for (const bool has_asked : {false, true}) {
    Small small;
    double factor = 1;
    Recorded recorded([&](const at::Tensor& x) { return x * factor; }, small.options);
    const auto x = at::randn({3});
    for (int i = 0; i < 23; ++i) recorded(x);  // the last comparison is of replay 16
    factor = 2;
    if (has_asked) recorded.check_next();
    if (has_asked) {
      EXPECT_THAT(test::message_of([&] { recorded(x); }, ErrorCode::kFailedPrecondition),
                  AllOf(HasSubstr("replay 21 was compared"), HasSubstr("since number 16")));
      EXPECT_TRUE(same_bits(recorded(x), x * 2));
    } else {
      EXPECT_TRUE(same_bits(recorded(x), x));
    }
  }
}

// Also of a step that is not compared otherwise, and no later than the next replay of any shape.
TEST(RecordedModes, ComparesOneReplayThatAProgramAsksFor) {
  Small small({.check = false});
  int calls = 0;
  Recorded recorded([&](const at::Tensor& x) { return ++calls, x * 2; }, small.options);
  for (int i = 0; i < 10; ++i) recorded(at::randn({3}));
  EXPECT_EQ(calls, 3);
  recorded.check_next();
  recorded(at::randn({3}));
  EXPECT_EQ(calls, 4);
  recorded(at::randn({3}));
  EXPECT_EQ(calls, 4);
}

}  // namespace
}  // namespace yoke::train

// Steps that are recorded on a GPU, on a fake one that uses the host's memory (fakes/gpus/host_gpus.cpp). Its graphs
// behave as real ones: nothing of a capture has run when it is over.
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "yoke/train/device/devices.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/precision/grad_scaler.h"
#include "yoke/train/record/recorded.h"

namespace yoke::train {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace nn = torch::nn;

const c10::Device kFirst(c10::kCUDA, 0), kSecond(c10::kCUDA, 1);

nn::Sequential mlp() {
  return nn::Sequential(nn::Linear(6, 16), nn::ReLU(), nn::LayerNorm(nn::LayerNormOptions({16})), nn::Linear(16, 4));
}

nn::Sequential with_dropout() {
  return nn::Sequential(nn::Linear(6, 16), nn::Dropout(0.4), nn::Tanh(), nn::Linear(16, 4));
}

nn::Sequential with_buffers() {
  return nn::Sequential(nn::Unflatten(nn::UnflattenOptions(1, {1, 6})), nn::Conv1d(1, 5, 3), nn::BatchNorm1d(5),
                        nn::SiLU(), nn::Flatten(), nn::Linear(20, 4));
}

struct TrainOptions {
  bool is_recorded = true, check = true, is_adam = true, zero_at_end = false, scales = false;
  int64_t num_steps = 14;
};

struct Outcome {
  std::vector<at::Tensor> values;
  int64_t num_recordings = 0, num_replays = 0;
  std::string why_not;
};

Outcome trained(const std::function<nn::Sequential()>& make, const TrainOptions& o) {
  at::manual_seed(1);
  auto net = make();
  to(*net, kFirst);
  std::unique_ptr<Optimizer> optimizer;
  auto parameters = net->named_parameters().pairs();
  if (o.is_adam) optimizer = std::make_unique<AdamW>(parameters, AdamWOptions{.lr = 0.01});
  if (!o.is_adam) optimizer = std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.05, .momentum = 0.9});
  GradScaler scaler({.init_scale = 1024, .growth_interval = 3, .enabled = o.scales});
  const auto do_step = [&](const at::Tensor& x, const at::Tensor& y) -> std::vector<at::Tensor> {
    if (!o.zero_at_end) optimizer->zero_grad();
    const auto logits = net->forward(x);
    const auto loss = torch::cross_entropy_loss(logits, y);
    scaler.scale(loss).backward();
    scaler.unscale(*optimizer);
    const auto norm = clip_grad_norm(optimizer->parameters(), {.max_norm = 0.5});
    scaler.step(*optimizer);
    scaler.update();
    if (o.zero_at_end) optimizer->zero_grad();
    return {loss, logits, norm};
  };
  Recorded recorded(do_step, {.check = o.check, .check_every = 1});
  Outcome outcome;
  for (int64_t i = 0; i < o.num_steps; ++i) {
    auto x = at::randn({8, 6}).to(kFirst);
    const auto y = at::randint(4, {8}, at::kLong).to(kFirst);
    if (o.scales && i == 9) x.mul_(std::numeric_limits<float>::infinity());
    optimizer->set_lr(0.01 / static_cast<double>(1 + i));
    for (const auto& result : o.is_recorded ? recorded(x, y) : do_step(x, y)) outcome.values.push_back(result.detach());
  }
  for (const auto& parameter : net->parameters()) {
    outcome.values.push_back(parameter.detach());
    if (parameter.grad().defined()) outcome.values.push_back(parameter.grad());
  }
  for (const auto& buffer : net->buffers()) outcome.values.push_back(buffer);
  outcome.num_recordings = recorded.num_recordings();
  outcome.num_replays = recorded.num_replays();
  outcome.why_not = recorded.why_not();
  return outcome;
}

void expect_same(const std::function<nn::Sequential()>& make, TrainOptions o) {
  const auto with = trained(make, o);
  o.is_recorded = false;
  const auto without = trained(make, o);
  EXPECT_THAT(with.why_not, IsEmpty());
  EXPECT_EQ(with.num_recordings, 1);
  EXPECT_EQ(with.num_replays, o.num_steps - 3);
  ASSERT_EQ(with.values.size(), without.values.size());
  for (size_t i = 0; i < with.values.size(); ++i) {
    EXPECT_TRUE(at::allclose(with.values[i].cpu(), without.values[i].cpu(), 0, 0, /*equal_nan=*/true)) << "value " << i;
  }
}

// Oracle: the step itself.
TEST(RecordedOnGpu, TrainsAsTheStepItself) {
  expect_same(mlp, {});
  expect_same(mlp, {.check = false});
  expect_same(mlp, {.check = false, .is_adam = false, .zero_at_end = true});
  expect_same(mlp, {.is_adam = false, .zero_at_end = true});
  expect_same(with_buffers, {});
  expect_same(with_buffers, {.check = false});
  expect_same(with_dropout, {.check = false});
}

TEST(RecordedOnGpu, ScalesGradientsAsTheStepItself) {
  expect_same(mlp, {.scales = true});
  expect_same(mlp, {.check = false, .scales = true});
}

/// y = sum(x * weight), and the optimizer.
struct Small {
  Small() {
    options.warn = [this](const std::string& message) { warnings.push_back(message); };
  }
  at::Tensor step(const at::Tensor& x) {
    ++num_calls;
    optimizer.zero_grad();
    const auto loss = (x * weight).sum();
    loss.backward();
    optimizer.step();
    return loss;
  }
  at::Tensor weight = at::ones({3}, kFirst).requires_grad_();
  Sgd optimizer{NamedTensors{{"weight", weight}}, SgdOptions{.lr = 1}};
  int num_calls = 0;
  RecordedOptions options;
  std::vector<std::string> warnings;
};

TEST(RecordedOnGpu, RecordsOnAnotherStreamAndReplaysOnTheCurrentOne) {
  Small small;
  std::vector<c10::StreamId> streams;
  const c10::impl::VirtualGuardImpl gpu(c10::kCUDA);
  small.options.check = false;
  Recorded recorded(
      [&](const at::Tensor& x) {
        streams.push_back(gpu.getStream(kFirst).id());
        return small.step(x);
      },
      small.options);
  for (int i = 0; i < 6; ++i) recorded(at::ones({3}, kFirst));
  EXPECT_THAT(streams, testing::ElementsAre(1, 1, 1));
  EXPECT_EQ(gpu.getStream(kFirst).id(), 0);
  EXPECT_TRUE(at::equal(small.weight.detach().cpu(), at::full({3}, -5.0)));
}

TEST(RecordedOnGpu, EachCallHasResultsOfItsOwn) {
  Small small;
  small.options.check = false;
  Recorded recorded([&](const at::Tensor& x) { return std::vector<at::Tensor>{small.step(x), x}; }, small.options);
  std::vector<at::Tensor> sums;
  for (int i = 0; i < 6; ++i) {
    const auto x = at::full({3}, i, at::dtype(at::kFloat).device(kFirst));
    const auto results = recorded(x);
    sums.push_back(results[0]);
    EXPECT_TRUE(at::equal(results[1].cpu(), x.cpu()));
  }
  // The weight is 1, 1, 0, -2, -5, -9.
  for (int i = 0; i < 6; ++i) EXPECT_EQ(sums[i].item<float>(), 3 * i * (1 - i * (i - 1) / 2)) << i;
}

TEST(RecordedOnGpu, InputsMayBeSlicesAndExpanded) {
  Small small;
  small.options.check_every = 1;
  Recorded recorded([&](const at::Tensor& x, const at::Tensor& y) { return small.step(x[0] + y[1]); }, small.options);
  for (int i = 0; i < 6; ++i) {
    const auto x = at::randn({4, 5}).to(kFirst).slice(0, 1, 3).slice(1, 2, 5);
    recorded(x, at::randn({1, 3}).to(kFirst).expand({2, 3}));
  }
  EXPECT_THAT(recorded.why_not(), IsEmpty());
  EXPECT_EQ(recorded.num_replays(), 3);
}

TEST(RecordedOnGpu, AStepThatCannotBeCapturedIsDoneOnceAndNamed) {
  Small small;
  Recorded recorded(
      [&](const at::Tensor& x) {
        small.step(x);
        return at::histc(x, 4, 0, 2);
      },
      small.options);
  for (int i = 0; i < 6; ++i) recorded(at::ones({3}, kFirst));
  EXPECT_THAT(recorded.why_not(), HasSubstr("it cannot be captured as a graph of the GPU: operation not permitted"));
  EXPECT_THAT(recorded.why_not(), HasSubstr("aten::histc"));
  EXPECT_EQ(small.num_calls, 6);
  EXPECT_TRUE(at::equal(small.weight.detach().cpu(), at::full({3}, -5.0)));
  EXPECT_EQ(small.warnings.size(), 1);
}

TEST(RecordedOnGpu, NamesWhatIsNotOnItsDevice) {
  Small small;
  const auto why_not = [&](const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& step) {
    Recorded recorded(step, small.options);
    for (int i = 0; i < 4; ++i) recorded(x);
    return recorded.why_not();
  };
  const auto x = at::ones({3}, kFirst);
  const auto step = [&](const at::Tensor& given) { return small.step(given); };
  EXPECT_THAT(why_not(x, [&](const at::Tensor& given) { return step(given) * at::tensor({2.0F}).sum(); }),
              HasSubstr("is on cpu, and the step is recorded on cuda:0"));
  EXPECT_THAT(why_not(at::ones({3}), [&](const at::Tensor& given) { return step(given.to(kFirst)); }),
              HasSubstr("is on cuda:0, and the step is recorded on cpu"));
  EXPECT_THAT(why_not(x, [&](const at::Tensor& given) { return step(given).to(kSecond); }), HasSubstr("is on cuda:1"));
  Recorded two([&](const at::Tensor& given, const at::Tensor&) { return step(given); }, small.options);
  for (int i = 0; i < 4; ++i) two(x, at::ones({3}));
  EXPECT_THAT(two.why_not(), HasSubstr("input 1 is on cpu"));
}

TEST(RecordedOnGpu, RefusesValuesAndInputsThatChange) {
  Small small;
  Recorded reads(
      [&](const at::Tensor& x) {
        const auto loss = small.step(x);
        return loss * loss.item<float>();
      },
      small.options);
  Recorded changes(
      [&](const at::Tensor& x) {
        x.add_(1);
        return small.step(x);
      },
      small.options);
  for (int i = 0; i < 4; ++i) {
    reads(at::ones({3}, kFirst));
    changes(at::ones({3}, kFirst));
  }
  EXPECT_THAT(reads.why_not(), HasSubstr("_local_scalar_dense gives the program a value"));
  EXPECT_THAT(changes.why_not(), HasSubstr("it changes input 0 in place"));
}

TEST(RecordedOnGpu, NoticesReplacedMemoryAndKeptGradients) {
  Small small;
  small.options.check_every = 1;
  Recorded recorded([&](const at::Tensor& x) { return small.step(x); }, small.options);
  at::Tensor kept;
  for (int i = 0; i < 20; ++i) {
    recorded(at::ones({3}, kFirst));
    if (i == 5) small.weight.set_data(at::full({3}, 7.0, kFirst));
    if (i == 12) kept = small.weight.grad();
    if (i == 13) kept.reset();
  }
  EXPECT_THAT(recorded.why_not(), IsEmpty());
  EXPECT_EQ(recorded.num_recordings(), 3);
  EXPECT_TRUE(at::equal(small.weight.detach().cpu(), at::full({3}, 7.0 - 14)));
  ASSERT_EQ(small.warnings.size(), 2);
  EXPECT_THAT(small.warnings[0], HasSubstr("replaced"));
  EXPECT_THAT(small.warnings[1], HasSubstr("keeps a gradient"));
}

TEST(RecordedOnGpu, TheComparisonFindsAStepThatDecidesByItself) {
  Small small;
  int num_calls = 0;
  Recorded recorded([&](const at::Tensor& x) { return small.step(++num_calls % 2 == 0 ? x : -x); }, small.options);
  for (int i = 0; i < 8; ++i) recorded(at::ones({3}, kFirst));
  EXPECT_THAT(recorded.why_not(), HasSubstr("other bits than the step itself"));
  EXPECT_EQ(num_calls, 8);
  EXPECT_TRUE(at::equal(small.weight.detach().cpu(), at::ones({3})));
}

TEST(RecordedOnGpu, ALaterDifferenceIsAWarningAndTheStepGoesOn) {
  Small small;
  double factor = 1;
  Recorded recorded([&](const at::Tensor& x) { return small.step(x * factor); }, small.options);
  for (int i = 0; i < 8; ++i) {
    if (i == 5) factor = 2;
    recorded(at::ones({3}, kFirst));
  }
  // Replay 3, which is not compared, has the old factor; replay 4 is compared.
  EXPECT_THAT(recorded.why_not(), HasSubstr("replay 4 was compared with it"));
  EXPECT_THAT(recorded.why_not(), HasSubstr("since number 2 may have been wrong"));
  EXPECT_TRUE(at::equal(small.weight.detach().cpu(), at::full({3}, 1.0 - 6 - 2 - 2)));
}

TEST(RecordedOnGpu, ShapesHaveGraphsOfTheirOwn) {
  Small small;
  small.options.check_every = 1;
  Recorded recorded([&](const at::Tensor& x) { return small.step(x); }, small.options);
  for (int i = 0; i < 12; ++i) recorded(i % 2 == 0 ? at::ones({3}, kFirst) : at::ones({2, 3}, kFirst));
  EXPECT_THAT(recorded.why_not(), IsEmpty());
  EXPECT_EQ(recorded.num_recordings(), 2);
  EXPECT_EQ(recorded.num_replays(), 8);
  EXPECT_TRUE(at::equal(small.weight.detach().cpu(), at::full({3}, 1.0 - 6 - 12)));
}

}  // namespace
}  // namespace yoke::train

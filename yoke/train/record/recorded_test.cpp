#include "yoke/train/record/recorded.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
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
#include <torch/nn/modules/transformerlayer.h>
#include <torch/optim/sgd.h>

#include <functional>

#include "fakes/run_ranks.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/optim/nadam.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/precision/autocast.h"
#include "yoke/train/precision/grad_scaler.h"
#include "yoke/train/record/small_step_test.h"
#include "yoke/train/seed.h"
#include "yoke/train/shard/sharded_optimizer.h"

namespace yoke::train {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace nn = torch::nn;

struct Batch {
  at::Tensor x, y;
};

/// A network and its batches.
struct Task {
  std::shared_ptr<nn::Module> module;
  std::function<at::Tensor(const at::Tensor&)> logits;
  std::function<Batch()> make_batch;
};

Task mlp() {
  nn::Sequential net(nn::Linear(20, 32), nn::ReLU(), nn::Dropout(0.3), nn::Linear(32, 32), nn::Tanh(),
                     nn::Linear(32, 7));
  return {net.ptr(), [net](const at::Tensor& x) mutable { return net->forward(x); },
          [] {
            return Batch{at::randn({9, 20}), at::randint(7, {9}, at::kLong)};
          }};
}

Task conv_net() {
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)), nn::BatchNorm2d(8), nn::ReLU(),
                     nn::MaxPool2d(2), nn::Conv2d(nn::Conv2dOptions(8, 12, 3)), nn::SiLU(),
                     nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions(1)), nn::Flatten(), nn::Linear(12, 7));
  return {net.ptr(), [net](const at::Tensor& x) mutable { return net->forward(x); },
          [] {
            return Batch{at::randn({4, 3, 12, 12}), at::randint(7, {4}, at::kLong)};
          }};
}

struct TransformerImpl : nn::Module {
  TransformerImpl() {
    register_module("tokens", tokens);
    register_module("positions", positions);
    register_module("norm", norm);
    register_module("layer", layer);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& text) {
    const auto x = tokens(text) + positions(at::arange(text.size(1)));
    const auto attended = at::scaled_dot_product_attention(x, x, x, {}, 0.0, /*is_causal=*/true);
    return head(layer(norm(attended).transpose(0, 1)).transpose(0, 1).mean(1));
  }
  nn::Embedding tokens{50, 16}, positions{11, 16};
  nn::LayerNorm norm{nn::LayerNormOptions({16})};
  nn::TransformerEncoderLayer layer{
      nn::TransformerEncoderLayerOptions(16, 2).dim_feedforward(32).dropout(0.1).activation(torch::kGELU)};
  nn::Linear head{16, 7};
};

Task transformer() {
  const auto net = std::make_shared<TransformerImpl>();
  return {net, [net](const at::Tensor& x) { return net->forward(x); },
          [] {
            return Batch{at::randint(50, {5, 11}, at::kLong), at::randint(7, {5}, at::kLong)};
          }};
}

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(NamedTensors)>;

std::unique_ptr<Optimizer> adamw(NamedTensors parameters) {
  return std::make_unique<AdamW>(std::move(parameters), AdamWOptions{.lr = 0.01, .weight_decay = 0.1});
}
std::unique_ptr<Optimizer> sgd(NamedTensors parameters) {
  return std::make_unique<Sgd>(std::move(parameters), SgdOptions{.lr = 0.01, .momentum = 0.9});
}
std::unique_ptr<Optimizer> nadam(NamedTensors parameters) {
  return std::make_unique<NAdam>(std::move(parameters), NAdamOptions{.lr = 0.01});
}

struct Outcome {
  std::vector<at::Tensor> values;  ///< Losses and logits of all steps, parameters, buffers and gradients at the end.
  int64_t num_recordings = 0, num_replays = 0;
  std::string why_not;
};

struct TrainOptions {
  bool is_recorded = true, check = false;
  int64_t num_steps = 20;
  bool zero_at_end = false, clip = true, is_half = false, scale = false;
};

Outcome train_task(const std::function<Task()>& make, const MakeOptimizer& make_optimizer, const TrainOptions& o) {
  at::manual_seed(1);
  const auto task = make();
  const auto optimizer = make_optimizer(task.module->named_parameters().pairs());
  GradScaler scaler({.init_scale = 65536, .growth_interval = 3, .enabled = o.scale});
  Outcome outcome;
  const auto do_step = [&](const at::Tensor& x, const at::Tensor& y) -> std::vector<at::Tensor> {
    if (!o.zero_at_end) optimizer->zero_grad();
    at::Tensor logits;
    {
      const Autocast lowered({.enabled = o.is_half});
      logits = task.logits(x);
    }
    const auto loss = torch::cross_entropy_loss(logits.to(at::kFloat), y);
    scaler.scale(loss).backward();
    scaler.unscale(*optimizer);
    const auto norm = o.clip ? clip_grad_norm(optimizer->parameters(), {.max_norm = 0.5}) : loss;
    scaler.step(*optimizer);
    scaler.update();
    if (o.zero_at_end) optimizer->zero_grad();
    return {loss, logits, norm};
  };
  Recorded recorded(do_step, {.check = o.check});
  for (int64_t i = 0; i < o.num_steps; ++i) {
    const auto [x, y] = task.make_batch();
    optimizer->set_lr(0.02 / static_cast<double>(1 + i));
    for (const auto& value : o.is_recorded ? recorded(x, y) : do_step(x, y)) outcome.values.push_back(value.detach());
  }
  for (const auto& parameter : task.module->parameters()) {
    outcome.values.push_back(parameter.detach());
    if (parameter.grad().defined()) outcome.values.push_back(parameter.grad());
  }
  for (const auto& buffer : task.module->buffers()) outcome.values.push_back(buffer);
  for (const auto& [name, tensor] : optimizer->state_dict()) outcome.values.push_back(tensor);
  outcome.values.push_back(at::randn({3}));  // the random generator has advanced by as much
  outcome.num_recordings = recorded.num_recordings();
  outcome.num_replays = recorded.num_replays();
  outcome.why_not = recorded.why_not();
  return outcome;
}

void expect_same_bits(const std::function<Task()>& make, const MakeOptimizer& make_optimizer, TrainOptions options) {
  options.is_recorded = false;
  const auto eager = train_task(make, make_optimizer, options);
  options.is_recorded = true;
  for (const bool check : {false, true}) {
    options.check = check;
    const auto recorded = train_task(make, make_optimizer, options);
    EXPECT_THAT(recorded.why_not, IsEmpty());
    EXPECT_EQ(recorded.num_recordings, 1);
    EXPECT_EQ(recorded.num_replays, options.num_steps - 3);
    ASSERT_EQ(recorded.values.size(), eager.values.size());
    for (size_t i = 0; i < eager.values.size(); ++i) {
      EXPECT_TRUE(same_bits(eager.values[i], recorded.values[i])) << "value " << i << " of " << eager.values.size();
    }
  }
}

TEST(Recorded, HasTheBitsOfTheStep) {
  for (const auto& optimizer : {adamw, sgd, nadam}) {
    for (const auto& task : {mlp, conv_net, transformer}) expect_same_bits(task, optimizer, {});
  }
}

TEST(Recorded, DropsGradientsAsTheStepDoes) { expect_same_bits(mlp, adamw, {.zero_at_end = true, .clip = false}); }

TEST(Recorded, TakesAutocastAndGradScaler) {
  expect_same_bits(mlp, adamw, {.is_half = true});
  expect_same_bits(transformer, sgd, {.is_half = true, .scale = true});
}

TEST(Recorded, NamesWhatCannotBeRecorded) {
  Small small;
  const auto& weight = small.weight;
  EXPECT_THAT(small.why_not([&](const at::Tensor& x) {
    const auto loss = (x * weight).sum();
    return loss.item<float>() > 0 ? loss : -loss;
  }),
              AllOf(HasSubstr("aten::_local_scalar_dense gives the program a value"), HasSubstr("called by")));
  EXPECT_THAT(Small().why_not([&](const at::Tensor& x) { return x.nonzero(); }),
              HasSubstr("aten::nonzero gives a tensor"));
  EXPECT_THAT(Small().why_not([&](const at::Tensor& x) { return x.index({x > 0}); }),
              HasSubstr("aten::index gives a tensor whose shape depends on values"));
  EXPECT_THAT(Small().why_not([&](const at::Tensor& x) {
    return x * at::tensor({1.0, 2.0, 3.0});
  }),
              HasSubstr("has got its values without an operator"));
  std::vector<float> values{1, 2, 3};
  EXPECT_THAT(Small().why_not([&](const at::Tensor& x) { return x * at::from_blob(values.data(), {3}); }),
              HasSubstr("torch::from_blob()"));
  std::vector<at::Tensor> kept;
  EXPECT_THAT(Small().why_not([&](const at::Tensor& x) {
    kept.push_back(x * 2);
    return x + 1;
  }),
              AllOf(HasSubstr("the program keeps a tensor of 48 bytes"), HasSubstr("aten::mul")));
  Sgd optimizer({{"weight", weight}}, {.lr = 0.1});
  EXPECT_THAT(Small().why_not([&](const at::Tensor& x) {
    (x * weight).sum().backward();
    optimizer.step(0.1);
    return x + 1;
  }),
              HasSubstr("call set_lr(lr) before the recorded step"));
}

// Some of the communication in shared memory takes a way without operators, but not while a step is recorded.
TEST(Recorded, NamesCommunication) {
  fakes::run_ranks(2, [](dist::World& world) {
    const auto why_not = [](const std::function<at::Tensor(const at::Tensor& x)>& step) {
      return Small().why_not(step);
    };
    const auto model = std::make_shared<nn::LinearImpl>(3, 2);
    const auto refused = AllOf(HasSubstr("c10d::"), HasSubstr("communicates with other ranks"));
    EXPECT_THAT(why_not([&](const at::Tensor& x) {
                  const auto sum = x.sum();
                  world.all_reduce(sum);
                  return sum;
                }),
                refused);
    {
      Sharded<AdamW> optimizer(model, world, {});
      DistributedDataParallel<nn::LinearImpl> net(*model, world);
      EXPECT_THAT(why_not([&](const at::Tensor& x) {
                    optimizer.zero_grad();
                    const auto loss = net(x).sum();
                    loss.backward();
                    optimizer.step();
                    return loss;
                  }),
                  refused);
    }
    Sharded<AdamW> optimizer(model, world, {}, {.gradients = GradientMean::kInStep});
    DistributedDataParallel<nn::LinearImpl> net(*model, world, {.average_in_step = true});
    EXPECT_THAT(why_not([&](const at::Tensor& x) {
                  optimizer.zero_grad();
                  const auto loss = net(x).sum();
                  loss.backward();
                  optimizer.step();
                  return loss;
                }),
                HasSubstr("communication of a DistributedDataParallel with average_in_step"));
  });
}

TEST(Recorded, KeepsTheStepThatCannotBeRecorded) {
  Small small;
  Recorded recorded([&](const at::Tensor& x) { return x * x.sum().item<float>(); }, small.options);
  for (int i = 0; i < 6; ++i) {
    const auto x = at::randn({4});
    EXPECT_TRUE(same_bits(recorded(x), x * x.sum().item<float>()));
  }
  ASSERT_EQ(small.warnings.size(), 1U);
  EXPECT_THAT(small.warnings[0], HasSubstr("the step runs as it would without recording"));
  EXPECT_EQ(recorded.num_replays(), 0);
}

TEST(Recorded, FindsThatTheProgramDecides) {
  Small small;
  int64_t num_calls = 0;
  const auto step = [&](const at::Tensor& x) { return x * small.weight.detach() * (++num_calls % 2 == 0 ? 2 : 3); };
  Recorded recorded(step, small.options);
  at::Tensor result;
  const auto x = at::randn({4, 3});
  for (int64_t i = 0; i < 8; ++i) {
    result = recorded(x);
    EXPECT_EQ(num_calls, i + 1);
    EXPECT_TRUE(same_bits(result, x * small.weight.detach() * (num_calls % 2 == 0 ? 2 : 3)));
  }
  ASSERT_EQ(small.warnings.size(), 1U);
  EXPECT_THAT(small.warnings[0], HasSubstr("other bits than the step itself, first in result 0 of the step"));
}

TEST(Recorded, FindsAnotherRateOfTorchsOptimizer) {
  Small small;
  torch::optim::SGD optimizer(std::vector<at::Tensor>{small.weight}, torch::optim::SGDOptions(0.1));
  Recorded recorded(
      [&](const at::Tensor& x) {
        optimizer.zero_grad();
        const auto loss = (x * small.weight).sum();
        loss.backward();
        optimizer.step();
        return loss;
      },
      small.options);
  for (int i = 0; i < 6; ++i) recorded(at::randn({4, 3}));
  EXPECT_EQ(recorded.num_replays(), 3);
  static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options()).lr(0.2);
  const auto message = test::message_of([&] { recorded(at::randn({4, 3})); }, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(message, AllOf(HasSubstr("replay 4 was compared with the step"), HasSubstr("a parameter, Float [3]")));
}

TEST(Recorded, RecordsEachShape) {
  Small small({.max_plans = 2});
  Recorded recorded([](const at::Tensor& x) { return x * 2 + x.sum(); }, small.options);
  for (int i = 0; i < 12; ++i) {
    const auto x = at::randn({1 + i % 3, 4});
    EXPECT_TRUE(same_bits(recorded(x), x * 2 + x.sum()));
  }
  EXPECT_EQ(recorded.num_recordings(), 2);
  ASSERT_EQ(small.warnings.size(), 1U);
  EXPECT_THAT(small.warnings[0], HasSubstr("steps of 2 shapes are recorded"));
}

TEST(Recorded, TakesInputsWhereTheyAre) {
  Small small;
  Recorded recorded([](const at::Tensor& x, const at::Tensor& y) { return x * y; }, small.options);
  const auto text = at::randn({40, 5});
  for (int64_t i = 0; i < 8; ++i) {  // views of one memory, of two, at other places
    const auto x = text.narrow(0, i, 4), y = i % 2 == 0 ? text.narrow(0, 30 - i, 4) : at::randn({4, 5});
    EXPECT_TRUE(same_bits(recorded(x, y), x * y));
  }
  EXPECT_EQ(recorded.num_recordings(), 1);
}

TEST(Recorded, GivesEachCallResultsOfItsOwn) {
  Small small;
  Recorded recorded(
      [&](const at::Tensor& x) -> std::vector<at::Tensor> {
        const auto y = x * 2;
        return {y, y.narrow(0, 1, 2), x, small.weight, {}};
      },
      small.options);
  std::vector<std::vector<at::Tensor>> all;
  std::vector<at::Tensor> inputs;
  for (int i = 0; i < 8; ++i) all.push_back(recorded(inputs.emplace_back(at::randn({4, 3}))));
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(same_bits(all[i][0], inputs[i] * 2));
    EXPECT_TRUE(same_bits(all[i][1], (inputs[i] * 2).narrow(0, 1, 2)));
    EXPECT_TRUE(all[i][1].is_alias_of(all[i][0]));
    EXPECT_EQ(all[i][2].const_data_ptr(), inputs[i].const_data_ptr());
    EXPECT_TRUE(all[i][3].is_alias_of(small.weight));
    EXPECT_FALSE(all[i][4].defined());
  }
  EXPECT_THAT(recorded.why_not(), IsEmpty());
}

TEST(Recorded, AccumulatesGradients) {
  Small small;
  Recorded recorded([&](const at::Tensor& x) { (x * small.weight).sum().backward(); }, small.options);
  for (int i = 0; i < 24; ++i) {
    if (i % 3 == 0) small.weight.mutable_grad().reset();
    const auto x = at::randn({4, 3});
    const auto before = small.weight.grad().defined() ? small.weight.grad().clone() : at::Tensor();
    recorded(x);
    const auto own = x.sum(0);
    EXPECT_TRUE(same_bits(small.weight.grad(), before.defined() ? before + own : own)) << i;
  }
  EXPECT_THAT(recorded.why_not(), IsEmpty());
  EXPECT_GE(recorded.num_replays(), 12);
}

TEST(Recorded, SeesALoadedState) {
  Small small;
  AdamW optimizer({{"weight", small.weight}}, {.lr = 0.1});
  const auto do_step = [&](const at::Tensor& x) {
    optimizer.zero_grad();
    (x * small.weight).sum().backward();
    optimizer.step();
  };
  Recorded recorded(do_step, small.options);
  const auto x = at::randn({4, 3});
  for (int i = 0; i < 5; ++i) recorded(x);
  TensorMap state;
  for (const auto& [name, tensor] : optimizer.state_dict()) state.emplace(name, tensor.clone());
  const auto start = small.weight.detach().clone();
  for (int i = 0; i < 4; ++i) recorded(x);
  const auto first = small.weight.detach().clone();
  optimizer.load_state_dict(state);
  {
    const at::NoGradGuard no_grad;
    small.weight.copy_(start);
  }
  for (int i = 0; i < 4; ++i) recorded(x);
  EXPECT_TRUE(same_bits(small.weight.detach(), first));
  EXPECT_EQ(optimizer.state_dict().at("step.weight").item<float>(), 9);
}

TEST(Recorded, IsRecordedAgainWithAnotherParameter) {
  for (const bool keep : {false, true}) {
    Small small;
    Recorded recorded([&](const at::Tensor& x) { (x * small.weight).sum().backward(); }, small.options);
    const auto x = at::randn({4, 3}), other = at::randn({3});
    const auto call = [&] {
      small.weight.mutable_grad().reset();
      recorded(x);
      return small.weight.grad();
    };
    for (int i = 0; i < 6; ++i) call();
    const auto kept = keep ? small.weight.detach() : at::Tensor();
    small.weight.set_data(other);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(call(), x.sum(0)));
    ASSERT_EQ(small.warnings.size(), 1U);
    EXPECT_THAT(small.warnings[0], HasSubstr("recorded again: a tensor that the step uses, Float [3], was replaced"));
  }
}

TEST(Recorded, IsRecordedAgainWithAnotherConstant) {
  Small small;
  auto factor = at::randn({3});
  Recorded recorded([&](const at::Tensor& x) { return x * factor; }, small.options);
  const auto x = at::randn({4, 3});
  for (int i = 0; i < 6; ++i) recorded(x);
  factor = at::randn({3});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(recorded(x), x * factor));
  EXPECT_EQ(recorded.num_recordings(), 2);
}

TEST(Recorded, SeesATensorThatHasMovedInMemory) {
  Small small({.check = false});
  Recorded recorded([&](const at::Tensor& x) { return x * small.weight.detach(); }, small.options);
  const auto x = at::randn({4, 3}), other = at::randn({3});
  for (int i = 0; i < 6; ++i) recorded(x);
  small.weight.storage().set_data_ptr_noswap(other.storage().set_data_ptr(c10::DataPtr()));
  EXPECT_TRUE(same_bits(recorded(x), x * small.weight.detach()));
  EXPECT_EQ(recorded.num_recordings(), 1);
}

TEST(Recorded, KnowsAutocastAroundTheStep) {
  Small small;
  const auto step = [&](const at::Tensor& x) { return x.matmul(small.weight.detach().reshape({3, 1})); };
  Recorded recorded(step, small.options);
  for (int i = 0; i < 12; ++i) {
    const Autocast lowered({.enabled = i % 2 == 0});
    const auto x = at::randn({4, 3});
    EXPECT_TRUE(same_bits(recorded(x), step(x)));
  }
  EXPECT_EQ(recorded.num_recordings(), 2);
}

}  // namespace
}  // namespace yoke::train

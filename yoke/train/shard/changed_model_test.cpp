// Layers that are unfrozen or replaced while a model is trained, with DistributedDataParallel, ZeRO-1, its averaging in
// the step and FullyShardedDataParallel. The oracle is one process with an optimizer of all parameters, as in PyTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/contract/variables.h"
#include "yoke/train/checkpoint/checkpoint_folder.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/precision/grad_scaler.h"
#include "yoke/train/shard/network_test.h"
#include "yoke/train/shard/sharded_optimizer.h"

namespace yoke::train {
namespace {

using dist::World;
using fakes::run_ranks;
using test::message_of;
using testing::HasSubstr;
namespace nn = torch::nn;

struct Layers : nn::Module {
  nn::Linear l1{nullptr}, l2{nullptr}, l3{nullptr};
  Layers() {
    l1 = register_module("l1", nn::Linear(6, 37));
    l2 = register_module("l2", nn::Linear(37, 5));
    l3 = register_module("l3", nn::Linear(5, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return l3(torch::tanh(l2(torch::tanh(l1(x))))); }
  void train_first(bool is_trained) {
    for (auto& parameter : l1->parameters()) parameter.set_requires_grad(is_trained);
  }
};

std::shared_ptr<Layers> make_layers() {
  return fakes::make_seeded(3, [] { return std::make_shared<Layers>(); });
}

enum class ChangedWay { kDdp, kZero, kInStep };

constexpr AdamWOptions kAdamW{.lr = 0.01, .weight_decay = 0.1};

/// The model and what trains it.
struct ChangedTrainee {
  World& world;
  const ChangedWay way;
  std::shared_ptr<Layers> model = make_layers();
  std::unique_ptr<DistributedDataParallel<Layers>> net = nullptr;
  std::unique_ptr<AdamW> plain = nullptr;
  std::unique_ptr<ShardedOptimizer> sharded = nullptr;

  void make_optimizer() {
    if (way == ChangedWay::kDdp) {
      plain = std::make_unique<AdamW>(*net, kAdamW);
    } else {
      sharded = std::make_unique<Sharded<AdamW>>(
          *model, world, kAdamW,
          ShardedOptimizerOptions{.gradients =
                                      way == ChangedWay::kInStep ? GradientMean::kInStep : GradientMean::kDone});
    }
  }
  void make_net() {
    net = std::make_unique<DistributedDataParallel<Layers>>(
        *model, world, DistributedDataParallelOptions{.average_in_step = way == ChangedWay::kInStep});
  }
  void make() {
    if (way != ChangedWay::kDdp) make_optimizer();
    make_net();
    if (way == ChangedWay::kDdp) make_optimizer();
  }
  void backward() {
    plain ? plain->zero_grad() : sharded->zero_grad();
    const auto part = Batch().part(world.rank(), world.size());
    loss_of((*net)(part.x), part).backward();
  }
  void step() { plain ? plain->step() : sharded->step(); }
  TensorMap state() const { return plain ? plain->state_dict() : sharded->state_dict(); }
  TrainState train_state() {
    TrainState state(world);
    state.add("model", *model);
    plain ? state.add("optimizer", *plain) : state.add("optimizer", *sharded);
    return state;
  }
};

class ChangedModel : public testing::TestWithParam<std::tuple<ChangedWay, bool>> {
 protected:
  ChangedModel() { share(std::get<1>(GetParam())); }
  ~ChangedModel() override { share(before_); }
  static ChangedWay way() { return std::get<0>(GetParam()); }

 private:
  static void share(bool shares) { setenv(variable::kSharedMemory, shares ? "1" : "0", 1); }
  const bool before_ =
      std::getenv(variable::kSharedMemory) == nullptr || std::string_view(std::getenv(variable::kSharedMemory)) != "0";
};

constexpr int kUnfrozenAt = 3, kFrozenAgainAt = 6, kNumSteps = 8;

TensorMap changed_by_one_process() {
  const auto model = make_layers();
  AdamW optimizer(*model, kAdamW);
  for (int i = 0; i < kNumSteps; ++i) {
    model->train_first(i >= kUnfrozenAt && i < kFrozenAgainAt);
    optimizer.zero_grad();
    loss_of(model->forward(Batch().x), Batch()).backward();
    optimizer.step();
  }
  return copy_of_parameters(*model);
}

void expect_nearly(const TensorMap& values, const TensorMap& expected) {
  for (const auto& [name, tensor] : expected) {
    EXPECT_TRUE(torch::allclose(values.at(name), tensor, 1e-4, 1e-5)) << name;
  }
}

TEST_P(ChangedModel, TrainsALayerThatIsUnfrozenLater) {
  const auto expected = changed_by_one_process();
  for (const int64_t num_ranks : {1, 2, 4}) {
    run_ranks(num_ranks, [&](World& world) {
      ChangedTrainee trainee{.world = world, .way = way()};
      trainee.model->train_first(false);
      trainee.make();
      for (int i = 0; i < kNumSteps; ++i) {
        if (i == kUnfrozenAt) {
          EXPECT_FALSE(trainee.state().contains("exp_avg.l1.weight")) << "a frozen layer costs no state";
          trainee.model->train_first(true);
          trainee.net.reset();
          trainee.make_net();
        } else if (i == kFrozenAgainAt) {
          trainee.model->train_first(false);
          trainee.make_net();
        }
        trainee.backward();
        trainee.step();
      }
      EXPECT_TRUE(trainee.state().contains("exp_avg.l1.weight"));
      expect_nearly(copy_of_parameters(*trainee.model), expected);
      const auto weights = world.all_gather(trainee.model->l1->weight.detach().clone());
      EXPECT_TRUE(torch::equal(weights[0], weights[num_ranks - 1]));
    });
  }
}

TEST_P(ChangedModel, UnscalesTheFirstGradientsOfALayer) {
  if (way() == ChangedWay::kDdp) return;
  run_ranks(2, [&](World& world) {
    TensorMap values[2];
    for (const bool is_scaled : {false, true}) {
      ChangedTrainee trainee{.world = world, .way = way()};
      trainee.model->train_first(false);
      trainee.make();
      GradScaler scaler({.init_scale = 16});
      for (int i = 0; i < 3; ++i) {
        if (i == 1) trainee.model->train_first(true);
        if (i == 1) trainee.make_net();
        trainee.sharded->zero_grad();
        const auto part = Batch().part(world.rank(), world.size());
        const auto loss = loss_of((*trainee.net)(part.x), part);
        if (is_scaled) {
          scaler.scale(loss).backward();
          scaler.unscale(*trainee.sharded);
          scaler.step(*trainee.sharded);
          scaler.update();
        } else {
          loss.backward();
          trainee.sharded->step();
        }
      }
      values[is_scaled ? 1 : 0] = copy_of_parameters(*trainee.model);
    }
    expect_nearly(values[1], values[0]);
  });
}

TEST_P(ChangedModel, LoadsTheStateOfALayerThatIsFrozenSince) {
  const test::TemporaryFolder folder;
  TensorMap before;
  std::mutex mutex;
  run_ranks(2, [&](World& world) {
    ChangedTrainee trainee{.world = world, .way = way()};
    trainee.make();
    trainee.backward();
    trainee.step();
    CheckpointFolder(folder.path()).save(1, trainee.train_state());
    const std::lock_guard lock(mutex);
    if (world.rank() == 0) before = copy_of_parameters(*trainee.model);
  });
  for (const int64_t num_ranks : {1, 2}) {
    run_ranks(num_ranks, [&](World& world) {
      ChangedTrainee trainee{.world = world, .way = way()};
      trainee.model->train_first(false);
      trainee.make();
      auto state = trainee.train_state();
      ASSERT_TRUE(CheckpointFolder(folder.path()).load_latest(state));
      EXPECT_TRUE(trainee.state().contains("exp_avg.l1.weight")) << "so that it may be trained again";
      trainee.backward();
      trainee.step();
      EXPECT_TRUE(torch::equal(trainee.model->l1->weight, before.at("l1.weight")));
      EXPECT_FALSE(torch::equal(trainee.model->l2->weight, before.at("l2.weight")));
    });
  }
}

// Earlier versions had the trained parameters alone in these optimizers.
TEST_P(ChangedModel, LoadsAStateWithoutFrozenLayers) {
  const test::TemporaryFolder folder;
  const auto is_trained = [](const auto& name, auto) { return !name.starts_with("l1."); };
  run_ranks(2, [&](World& world) {
    const auto model = make_layers();
    model->train_first(false);
    AdamW optimizer(split(parameters_of(*model), is_trained).first, kAdamW);
    loss_of(model->forward(Batch().x), Batch()).backward();
    optimizer.step();
    TrainState state(world);
    state.add("model", *model).add("optimizer", optimizer);
    CheckpointFolder(folder.path()).save(1, state);
  });
  run_ranks(2, [&](World& world) {
    ChangedTrainee trainee{.world = world, .way = way()};
    trainee.model->train_first(false);
    trainee.make();
    auto state = trainee.train_state();
    ASSERT_TRUE(CheckpointFolder(folder.path()).load_latest(state));
    EXPECT_FALSE(trainee.state().contains("exp_avg.l1.weight"));
    EXPECT_EQ(trainee.state().at("step.l3.bias").item<float>(), 1);
  });
}

TEST_P(ChangedModel, AModuleThatWasReplacedIsNamed) {
  if (way() != ChangedWay::kInStep) return;  // ddp_silent_drift_test.cpp has the others
  for (const bool adds : {false, true}) {
    run_ranks(2, [&](World& world) {
      ChangedTrainee trainee{.world = world, .way = way()};
      trainee.make();
      trainee.backward();
      trainee.step();
      if (adds) {
        trainee.model->l1->weight = trainee.model->l1->register_parameter("other", torch::full({37, 6}, 0.1));
      } else {
        trainee.model->l3 = trainee.model->replace_module("l3", nn::Linear(5, 2));
      }
      EXPECT_THAT(message_of([&] { trainee.backward(); }, ErrorCode::kFailedPrecondition),
                  HasSubstr(adds ? "the model has a parameter 'l1.other' that it did not have"
                                 : "the model has another 'l3.weight' than when this was constructed"));
    });
  }
}

TEST_P(ChangedModel, ANewOptimizerTakesThePlaceOfAnother) {
  if (way() == ChangedWay::kDdp) return;
  run_ranks(2, [&](World& world) {
    ChangedTrainee trainee{.world = world, .way = way()};
    trainee.make();
    trainee.backward();
    trainee.step();
    trainee.make_optimizer();  // the old one ends after the new one was made
    trainee.make_net();
    const auto before = trainee.model->l2->weight.detach().clone();
    trainee.backward();
    trainee.step();
    EXPECT_FALSE(torch::equal(trainee.model->l2->weight, before));
    const auto weights = world.all_gather(trainee.model->l2->weight.detach().clone());
    EXPECT_TRUE(torch::equal(weights[0], weights[1]));
  });
}

TEST_P(ChangedModel, ClipsTheElementsOfTheMean) {
  if (way() == ChangedWay::kDdp) return;
  run_ranks(2, [&](World& world) {
    TensorMap expected;
    for (const auto kind : {ChangedWay::kDdp, way()}) {
      ChangedTrainee trainee{.world = world, .way = kind};
      trainee.make();
      for (int i = 0; i < 3; ++i) {
        trainee.backward();
        if (kind == ChangedWay::kInStep) {
          trainee.sharded->clip_grad_value(1e-3);
        } else {
          clip_grad_value(trainee.net->parameters(), 1e-3);
        }
        trainee.step();
      }
      if (kind == ChangedWay::kDdp) expected = copy_of_parameters(*trainee.model);
      expect_nearly(copy_of_parameters(*trainee.model), expected);
      if (kind != ChangedWay::kZero) continue;
      EXPECT_THAT(message_of([&] { trainee.sharded->clip_grad_value(1); }, ErrorCode::kFailedPrecondition),
                  HasSubstr("train::clip_grad_value"));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, ChangedModel,
                         testing::Combine(testing::Values(ChangedWay::kDdp, ChangedWay::kZero, ChangedWay::kInStep),
                                          testing::Bool()),
                         [](const auto& info) {
                           const auto way = std::get<0>(info.param);
                           return std::string(way == ChangedWay::kDdp    ? "Ddp"
                                              : way == ChangedWay::kZero ? "Zero"
                                                                         : "InStep") +
                                  (std::get<1>(info.param) ? "" : "ByMessages");
                         });

TEST(ChangedShardedModel, AModuleThatWasReplacedIsNamed) {
  for (const bool adds : {false, true}) {
    run_ranks(2, [&](World& world) {
      const auto model = make_layers();
      FullyShardedDataParallel net(*model, world);
      AdamW optimizer(net, kAdamW);
      const auto step = [&] {
        optimizer.zero_grad();
        const auto part = Batch().part(world.rank(), world.size());
        loss_of(net(part.x), part).backward();
        optimizer.step();
      };
      step();
      if (adds) {
        model->l1->weight = model->l1->register_parameter("other", torch::full({37, 6}, 0.1));
      } else {
        model->l3 = model->replace_module("l3", nn::Linear(5, 2));
      }
      EXPECT_THAT(message_of(step, ErrorCode::kFailedPrecondition),
                  HasSubstr(adds ? "the model has a parameter 'l1.other' that it did not have"
                                 : "the model has another 'l3.weight' than when this was constructed"));
    });
  }
}

TEST(ChangedShardedModel, LoadsTheStateOfALayerThatIsFrozenSince) {
  const test::TemporaryFolder folder;
  for (const bool is_first : {true, false}) {
    run_ranks(2, [&](World& world) {
      const auto model = make_layers();
      model->train_first(is_first);
      FullyShardedDataParallel net(*model, world);
      AdamW optimizer(net, kAdamW);
      TrainState state(world);
      state.add("model", net).add("optimizer", optimizer);
      if (!is_first) ASSERT_TRUE(CheckpointFolder(folder.path()).load_latest(state));
      EXPECT_EQ(optimizer.state_dict().contains("exp_avg.l1.weight"), !is_first);
      const auto part = Batch().part(world.rank(), world.size());
      loss_of(net(part.x), part).backward();
      optimizer.step();
      if (is_first) CheckpointFolder(folder.path()).save(1, state);
    });
  }
}

TEST(ChangedShardedModel, WithUnusedParametersAReplacedModuleIsNamedToo) {
  run_ranks(2, [&](World& world) {
    const auto model = make_layers();
    DistributedDataParallel net(*model, world, {.find_unused_parameters = true});
    const auto step = [&] { loss_of(net(Batch().x), Batch()).backward(); };
    step();
    model->l3 = model->replace_module("l3", nn::Linear(5, 2));
    EXPECT_THAT(message_of(step, ErrorCode::kFailedPrecondition), HasSubstr("the model has another 'l3.weight'"));
  });
}

}  // namespace
}  // namespace yoke::train

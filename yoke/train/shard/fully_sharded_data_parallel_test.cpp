#include "yoke/train/shard/fully_sharded_data_parallel.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>

#include <atomic>

#include "fakes/run_ranks.h"
#include "yoke/base/error.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/shard/network_test.h"

namespace yoke::train {
namespace {

using dist::World;
using fakes::run_ranks;
namespace nn = torch::nn;

constexpr int kSteps = 20;

TensorMap train_one_process(int steps = kSteps) {
  auto network = make_network();
  const Batch batch;
  AdamW optimizer(network->named_parameters().pairs(), {.lr = 0.01});
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    loss_of(network->forward(batch.x), batch).backward();
    optimizer.step();
  }
  return copy_of_parameters(*network);
}

TensorMap train_sharded(int64_t num_ranks, const FullyShardedOptions& options, int steps = kSteps, int rounds = 1,
                        Recomputing recomputing = Recomputing::kNot) {
  TensorMap result;
  run_ranks(num_ranks, [&](World& world) {
    auto network = make_network(static_cast<uint64_t>(world.rank()));  // rank 0's weights are used
    FullyShardedDataParallel sharded(*network, world, options);
    network->set_recomputing(recomputing);
    const auto batch = Batch().part(world.rank(), world.size());
    AdamW optimizer(sharded.parameters(), {.lr = 0.01});
    for (int i = 0; i < steps; ++i) {
      optimizer.zero_grad();
      for (int round = 0; round < rounds; ++round) {
        (loss_of(sharded(batch.x), batch) / rounds).backward();
      }
      optimizer.step();
    }
    auto whole = whole_tensors(world, *network);
    if (world.rank() == 0) result = std::move(whole);
  });
  return result;
}

void expect_close(const TensorMap& ours, const TensorMap& theirs, const std::string& what) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  for (const auto& [name, tensor] : theirs) {
    EXPECT_TRUE(torch::allclose(ours.at(name), tensor, 1e-3, 1e-4))
        << what << ": " << name << " differs by " << (ours.at(name) - tensor).abs().max().item<double>();
  }
}

void expect_equal(const TensorMap& ours, const TensorMap& theirs, const std::string& what) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  for (const auto& [name, tensor] : theirs) EXPECT_TRUE(torch::equal(ours.at(name), tensor)) << what << ": " << name;
}

struct Listed : nn::Module {
  nn::ModuleList blocks;
  bool goes_through_units = true;
  Listed() {
    register_module("blocks", blocks);
    for (int i = 0; i < 3; ++i) blocks->push_back(Unit<nn::LinearImpl>(8, 8).ptr());
  }
  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < blocks->size(); ++i) {
      const auto block = blocks->ptr<nn::LinearImpl>(i);
      x = (goes_through_units ? Unit<nn::LinearImpl>(block)(x) : block->forward(x)).relu();
    }
    return x;
  }
};

// Oracle: the network that is not sharded.
TEST(FullyShardedDataParallel, UnitsMayBeInAModuleList) {
  run_ranks(2, [](World& world) {
    auto plain = fakes::make_seeded(1, [] { return Listed(); }),
         network = fakes::make_seeded(1, [] { return Listed(); });
    FullyShardedDataParallel sharded(network, world, {.units = {"blocks.0", "blocks.1", "blocks.2"}});
    const auto x = torch::ones({2, 8});
    EXPECT_TRUE(torch::equal(sharded(x), plain.forward(x)));
    network.goes_through_units = false;
    EXPECT_THROW(sharded(x), std::exception);
  });
}

// Oracle: with a mean loss and equal shares, N ranks must give one process's parameters.
TEST(FullyShardedDataParallel, AnyNumberOfRanksGivesOneProcessesParameters) {
  const auto whole = train_one_process();
  for (const int64_t num_ranks : {1, 2, 3, 4}) {
    if (16 % num_ranks != 0) continue;
    expect_close(train_sharded(num_ranks, {.units = kUnits}), whole, fmt::format("{} ranks", num_ranks));
  }
}

TEST(FullyShardedDataParallel, NoOptionChangesABit) {
  const auto plain = train_sharded(2, {.units = kUnits});
  expect_equal(train_sharded(2, {.units = kUnits}), plain, "a second run");
  expect_equal(train_sharded(2, {.units = kUnits, .reshard_after_forward = false}), plain, "kept after forward");
  expect_equal(train_sharded(2, {.units = {"block1"}}), plain, "one unit");
  expect_equal(train_sharded(2, {}), plain, "no unit");
}

TEST(FullyShardedDataParallel, OneRankEqualsOneProcessToTheLastBit) {
  expect_equal(train_sharded(1, {.units = kUnits}), train_one_process(), "one rank");
}

// Recomputation calls the function again in backward. So units are gathered while the backward of other units runs.
TEST(FullyShardedDataParallel, RecomputingChangesNoBit) {
  const auto plain = train_sharded(2, {.units = kUnits}, 5);
  expect_equal(train_sharded(2, {.units = kUnits}, 5, 1, Recomputing::kInsideUnits), plain, "inside");
  expect_equal(train_sharded(2, {.units = kUnits}, 5, 1, Recomputing::kAroundUnits), plain, "around");
  expect_equal(train_sharded(2, {.units = {"block1"}}, 5, 1, Recomputing::kAroundUnits), plain, "one unit");
}

TEST(FullyShardedDataParallel, GradientsAccumulateUntilTheyAreReset) {
  expect_close(train_sharded(2, {.units = kUnits}, kSteps, 3), train_one_process(), "three rounds a step");
}

TEST(FullyShardedDataParallel, ParametersAreThereWithinTheirUnitOnly) {
  run_ranks(2, [](World& world) {
    auto network = make_network();
    const auto expected = copy_of_parameters(*network);
    FullyShardedDataParallel sharded(*network, world, {.units = kUnits});
    int64_t own = 0;
    for (const auto& [name, shard] : sharded.parameters()) own += shard.numel();
    int64_t all = 0;
    for (const auto& [name, tensor] : expected) all += tensor.numel();
    EXPECT_LT(own, all * 6 / 10) << "about half of each";
    const auto expect_sharded = [&] {
      for (const auto& parameter : network->parameters()) EXPECT_EQ(parameter.numel(), 0);
    };
    expect_sharded();
    // A unit that is called alone, without gradients, has its values during the call and no elements afterwards.
    {
      const torch::NoGradGuard no_grad;
      const auto x = torch::ones({1, 10});
      const auto y = sharded.forward(*network->blocks[1], x);
      auto plain = make_network();
      EXPECT_TRUE(torch::equal(y, plain->blocks[1]->forward(x)));
      sharded(torch::ones({1, 6}));
      expect_sharded();
    }
    // With gradients, the model's own parameters stay gathered until backward, but its blocks do not.
    const auto output = sharded(torch::ones({1, 6}));
    EXPECT_EQ(network->first->weight.numel(), 60);
    for (const auto& block : network->blocks) EXPECT_EQ(block->wide->weight.numel(), 0);
    output.sum().backward();
    expect_sharded();
    for (const auto& parameter : network->parameters()) EXPECT_EQ(parameter.grad().numel(), 0) << "but a mark";
    for (const auto& [name, shard] : sharded.parameters()) EXPECT_EQ(shard.grad().sizes(), shard.sizes()) << name;
  });
}

// After a forward without a backward, the model's own parameters are still gathered, and a unit may have been
// prefetched. The gathered values are out of date after an optimizer step.
TEST(FullyShardedDataParallel, AStepBetweenForwardsIsSeenByTheNext) {
  run_ranks(2, [](World& world) {
    auto network = make_network();
    FullyShardedDataParallel sharded(*network, world, {.units = kUnits, .reshard_after_forward = false});
    const auto x = torch::ones({1, 6}), y = torch::ones({1, 10});
    const auto before = sharded(x).detach();
    sharded.forward(*network->blocks[0], y);  // prefetches block1
    {
      const torch::NoGradGuard no_grad;
      for (const auto& [name, shard] : sharded.parameters()) shard.mul_(2);
    }
    const auto after = sharded(x);
    auto plain = make_network();
    {
      const torch::NoGradGuard no_grad;
      for (auto& parameter : plain->parameters()) parameter.mul_(2);
    }
    EXPECT_TRUE(torch::equal(after, plain->forward(x)));
    EXPECT_FALSE(torch::equal(after, before));
  });
}

TEST(FullyShardedDataParallel, WhatWasGatheredAheadAndNotUsedIsGatheredAgain) {
  run_ranks(2, [](World& world) {
    auto network = make_network(), plain = make_network();
    FullyShardedDataParallel sharded(*network, world, {.units = kUnits});
    const torch::NoGradGuard no_grad;
    const auto x = torch::ones({1, 10});
    sharded.forward(*network->blocks[0], x);
    sharded.forward(*network->blocks[1], x);
    sharded.forward(*network->blocks[0], x);      // prefetches block1, which is not called this time
    for (int i = 0; i < 4; ++i) world.barrier();  // by then the prefetch has finished
    for (const auto& [name, shard] : sharded.parameters()) shard.mul_(2);
    for (auto& parameter : plain->parameters()) parameter.mul_(2);
    for (const size_t i : {0, 1}) {
      EXPECT_TRUE(torch::equal(sharded.forward(*network->blocks[i], x), plain->blocks[i]->forward(x))) << i;
    }
  });
}

/// A module with two inputs, two outputs, a first parameter that is frozen, and a parameter that some calls do not use.
struct Odd : nn::Module {
  nn::Linear frozen{nullptr}, trained{nullptr}, spare{nullptr};
  Odd() {
    frozen = register_module("frozen", nn::Linear(4, 4));
    trained = register_module("trained", nn::Linear(4, 4));
    spare = register_module("spare", nn::Linear(4, 4));
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  }
  std::pair<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& a, const std::vector<at::Tensor>& b,
                                                         bool use_spare) {
    auto x = trained(torch::tanh(frozen(a)));
    if (use_spare) x = spare(x);
    return {x * b[0], {torch::tanh(trained(b[1])), b[0]}};
  }
};

struct OddNetwork : nn::Module {
  Unit<Odd> odd{nullptr};
  OddNetwork() { odd = register_module("odd", Unit<Odd>()); }
  at::Tensor forward(const at::Tensor& a, const std::vector<at::Tensor>& b, bool use_spare, int how) {
    const auto [x, rest] = odd(a, b, use_spare);
    if (how == 2) return rest[1].sum();  // returns an unchanged input, so no parameter is used
    return how == 1 ? (x.sum() + (rest[0] * rest[1]).sum()) : rest[0].sum();
  }
};

TEST(FullyShardedDataParallel, FrozenUnusedSharedAndSeveral) {
  torch::manual_seed(0);
  OddNetwork plain;
  const auto initial = copy_of_parameters(plain);
  for (const bool use_spare : {false, true}) {
    for (const int how : {0, 1, 2}) {
      const auto inputs = [] {
        const auto make = [](double value) { return torch::full({2, 4}, value).requires_grad_(true); };
        return std::vector<at::Tensor>{make(0.1), make(0.2), make(0.3)};
      };
      plain.zero_grad();
      const auto expected = inputs();
      plain.forward(expected[0], {expected[1], expected[2]}, use_spare, how).backward();
      run_ranks(2, [&](World& world) {
        OddNetwork network;
        {
          const torch::NoGradGuard no_grad;
          for (auto& item : network.named_parameters()) item.value().copy_(initial.at(item.key()));
        }
        FullyShardedDataParallel sharded(network, world, {.units = {"odd"}});
        const auto x = inputs();
        sharded(x[0], std::vector<at::Tensor>{x[1], x[2]}, use_spare, how).backward();
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_EQ(x[i].grad().defined(), expected[i].grad().defined()) << i;
          if (!x[i].grad().defined()) continue;
          EXPECT_TRUE(torch::allclose(x[i].grad(), expected[i].grad())) << i;
        }
        for (const auto& [name, part] : sharded.parameters()) {
          EXPECT_EQ(part.grad().defined(), !name.starts_with("odd.frozen.")) << name;
          const torch::NoGradGuard no_grad;
          part.grad().defined() ? part.copy_(part.grad()) : part.zero_();
        }
        const auto whole = gather_tensors(world, sharded.parameters());
        for (const auto& [name, gradient] : whole) {
          const auto& theirs = plain.named_parameters()[name].grad();
          EXPECT_TRUE(torch::allclose(gradient, theirs.defined() ? theirs : torch::zeros_like(gradient))) << name;
        }
      });
    }
  }
}

/// Blocks that a rank may skip or use in part, as in stochastic depth and mixtures of experts.
struct Optional : nn::Module {
  nn::Linear a{nullptr}, b{nullptr};
  Optional() {
    a = register_module("a", nn::Linear(6, 6));
    b = register_module("b", nn::Linear(6, 6));
  }
  at::Tensor forward(const at::Tensor& x, int use) {
    return use == 0 ? x : use == 1 ? x + torch::tanh(a(x)) : x + b(torch::tanh(a(x)));
  }
};

struct OptionalNetwork : nn::Module {
  nn::Linear first{nullptr};
  std::vector<Unit<Optional>> blocks;
  OptionalNetwork() {
    first = register_module("first", nn::Linear(6, 6));
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), Unit<Optional>()));
    }
  }
  /// `use` has one entry per block. With -1 the block is computed, but is not part of the result.
  at::Tensor forward(const at::Tensor& input, const std::vector<int>& use) {
    auto x = first(input);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const int how = std::abs(use[i]) * (use[i] < 0 ? 2 : 1);
      const auto y = blocks[i](x, how);
      if (use[i] >= 0) x = y;
    }
    return x.sum();
  }
};

// Oracle: one process that averages the gradients of all ranks' losses. An unused parameter contributes zero.
TEST(FullyShardedDataParallel, EachRankMayUseOtherParameters) {
  torch::manual_seed(0);
  OptionalNetwork plain;
  const auto initial = copy_of_parameters(plain);
  const std::vector<std::vector<std::vector<int>>> uses = {
      {{2, 2, 2, 2}, {2, 1, 2, 2}},     {{2, 2, 2, 2}, {2, 0, 0, 2}},  {{0, 2, 1, 0}, {1, 0, 0, 0}},
      {{2, 2, 2, 2}, {0, 0, 0, 0}},     {{2, 2, 2, 2}, {2, -1, 2, 2}}, {{-1, 2, 2, -1}, {2, -1, -1, 2}},
      {{2, 2, 2, 2}, {-1, -1, -1, -1}},
  };
  for (const auto& use : uses) {
    for (const bool reshard : {true, false}) {
      plain.zero_grad();
      for (const auto& one : use) (plain.forward(torch::ones({2, 6}), one) / 2).backward();
      run_ranks(
          2,
          [&](World& world) {
            OptionalNetwork network;
            {
              const torch::NoGradGuard no_grad;
              for (auto& item : network.named_parameters()) item.value().copy_(initial.at(item.key()));
            }
            FullyShardedDataParallel sharded(
                network, world, {.units = {"block0", "block1", "block2", "block3"}, .reshard_after_forward = reshard});
            const auto& own = use[static_cast<size_t>(world.rank())];
            sharded(torch::ones({2, 6}), own).backward();
            {
              const torch::NoGradGuard no_grad;
              for (const auto& [name, shard] : sharded.parameters()) shard.copy_(shard.grad());
            }
            for (const auto& [name, gradient] : whole_tensors(world, network)) {
              const auto& theirs = plain.named_parameters()[name].grad();
              EXPECT_TRUE(
                  torch::allclose(gradient, theirs.defined() ? theirs : torch::zeros_like(gradient), 1e-4, 1e-6))
                  << name << testing::PrintToString(use);
            }
          },
          std::chrono::seconds(5));
    }
  }
}

TEST(FullyShardedDataParallel, ClipsTheNormOfTheWholeGradient) {
  const Batch batch;
  auto plain = make_network();
  loss_of(plain->forward(batch.x), batch).backward();
  double square = 0;
  for (const auto& parameter : plain->parameters()) square += parameter.grad().square().sum().item<double>();
  for (const int64_t num_ranks : {1, 2, 4}) {
    run_ranks(num_ranks, [&](World& world) {
      auto network = make_network();
      FullyShardedDataParallel sharded(*network, world, {.units = kUnits});
      const auto part = batch.part(world.rank(), world.size());
      loss_of(sharded(part.x), part).backward();
      EXPECT_NEAR(sharded.clip_grad_norm(0.01).item<double>(), std::sqrt(square), 1e-5);
      EXPECT_NEAR(sharded.clip_grad_norm(1).item<double>(), 0.01, 1e-6) << "and below the limit nothing changes";
      EXPECT_NEAR(sharded.clip_grad_norm(1).item<double>(), 0.01, 1e-6);
    });
  }
}

TEST(FullyShardedDataParallel, ComputesInBfloat16AndKeepsShardsInFloat) {
  const auto whole = train_one_process(5);
  run_ranks(2, [&](World& world) {
    auto network = make_network();
    FullyShardedDataParallel sharded(*network, world, {.units = kUnits, .compute_dtype = at::kBFloat16});
    AdamW optimizer(sharded.parameters(), {.lr = 0.01});
    const auto batch = Batch().part(world.rank(), world.size());
    for (int i = 0; i < 5; ++i) {
      optimizer.zero_grad();
      const auto output = sharded(batch.x.to(at::kBFloat16));
      EXPECT_EQ(output.scalar_type(), at::kBFloat16);
      loss_of(output.to(at::kFloat), batch).backward();
      optimizer.step();
    }
    for (const auto& [name, shard] : sharded.parameters()) {
      EXPECT_EQ(shard.scalar_type(), at::kFloat);
      EXPECT_EQ(shard.grad().scalar_type(), at::kFloat);
    }
    for (const auto& [name, tensor] : whole_tensors(world, *network)) {
      EXPECT_TRUE(torch::allclose(tensor, whole.at(name), 0.1, 0.05)) << name;
    }
  });
}

struct ComplexNetwork : nn::Module {
  at::Tensor weight;
  ComplexNetwork() {
    const auto values = torch::arange(80, torch::kFloat).view({16, 5});
    weight = register_parameter("weight", torch::complex(torch::sin(values), torch::cos(values)));
  }
  at::Tensor forward(const at::Tensor& x) { return torch::view_as_real(x.matmul(weight.t())).square().mean(); }
};

TEST(FullyShardedDataParallel, ShardsComplexParameters) {
  const auto values = torch::arange(15, torch::kFloat).view({3, 5});
  const auto x = torch::complex(torch::cos(values), values);
  ComplexNetwork plain;
  plain.forward(x).backward();
  run_ranks(2, [&](World& world) {
    ComplexNetwork network;
    FullyShardedDataParallel sharded(network, world);
    sharded(x).backward();
    const auto norm = plain.weight.grad().abs().square().sum().sqrt();
    EXPECT_TRUE(torch::allclose(sharded.clip_grad_norm(1e9), norm));
    EXPECT_TRUE(torch::allclose(grad_norm(sharded.parameters()), norm));
    {
      const torch::NoGradGuard no_grad;
      for (const auto& [name, part] : sharded.parameters()) part.copy_(part.grad());
    }
    for (const auto& [name, gradient] : gather_tensors(world, sharded.parameters())) {
      EXPECT_TRUE(torch::allclose(gradient, plain.weight.grad())) << name;
    }
  });
}

struct WithBuffer : nn::Module {
  nn::BatchNorm1d norm{nullptr};
  WithBuffer() { norm = register_module("norm", nn::BatchNorm1d(3)); }
  at::Tensor forward(const at::Tensor& x) { return norm(x); }
};

TEST(FullyShardedDataParallel, BuffersStayWholeAndFollowRankZero) {
  run_ranks(2, [](World& world) {
    WithBuffer model;
    model.norm->running_mean.fill_(static_cast<double>(world.rank() + 5));
    FullyShardedDataParallel sharded(model, world);
    EXPECT_TRUE(torch::equal(model.norm->running_mean, torch::full({3}, 5.0)));
    sharded(torch::full({4, 3}, static_cast<double>(world.rank() + 1)));
    sharded.sync_buffers();
    const auto whole = whole_tensors(world, model);
    if (world.rank() != 0) return;
    EXPECT_EQ(whole.size(), 5u);
    EXPECT_TRUE(torch::allclose(whole.at("norm.running_mean"), torch::full({3}, 4.6)));
    EXPECT_EQ(whole.at("norm.num_batches_tracked").item<int64_t>(), 1);
  });
}

at::Tensor statistics_of(const WithBuffer& model) {
  return torch::cat(
      {model.norm->running_mean, model.norm->running_var, model.norm->num_batches_tracked.to(torch::kFloat).view({1})});
}

at::Tensor rows_of_rank(const World& world) { return torch::sin(torch::arange(12) * (world.rank() + 1)).view({4, 3}); }

// Otherwise a checkpoint, which has the first rank's, would be of another network than each rank has evaluated.
TEST(FullyShardedDataParallel, AfterABackwardAllRanksHaveTheFirstRanksStatistics) {
  for (const bool broadcasts : {true, false}) {
    run_ranks(2, [&](World& world) {
      WithBuffer alone, model;
      FullyShardedDataParallel sharded(model, world, {.broadcast_buffers = broadcasts});
      for (int step = 0; step < 3; ++step) {
        sharded(rows_of_rank(world)).square().sum().backward();
        alone.forward(rows_of_rank(world));
      }
      const auto all = world.all_gather(statistics_of(model));
      EXPECT_TRUE(torch::equal(all[0], world.all_gather(statistics_of(alone))[0]));
      EXPECT_EQ(torch::equal(all[0], all[1]), broadcasts);
    });
  }
}

// A batch norm in evaluation mode keeps its statistics for backward, which may be behind that of another graph.
TEST(FullyShardedDataParallel, ABackwardDoesNotSpoilAnEarlierGraph) {
  run_ranks(2, [](World& world) {
    WithBuffer model;
    FullyShardedDataParallel sharded(model, world);
    model.eval();
    const auto first = sharded(rows_of_rank(world)).square().sum(), second = sharded(rows_of_rank(world)).sum();
    second.backward();
    EXPECT_NO_THROW(first.backward());
  });
}

}  // namespace
}  // namespace yoke::train

// Tests that a stopped training can be resumed on a different number of ranks.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "yoke/train/checkpoint/checkpoint_folder.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/parallel/distributed_data_parallel.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kGlobalBatch = 8, kNumFeatures = 5;

at::Generator generator_of(int64_t seed) { return at::detail::createCPUGenerator(static_cast<uint64_t>(seed)); }

/// One rank's part of a training. The global batches do not depend on the number of ranks.
struct Training {
  torch::nn::Linear model{kNumFeatures, 2};
  std::unique_ptr<DistributedDataParallel<torch::nn::Linear>> net;
  std::unique_ptr<Sgd> optimizer;
  at::Generator augmentation;
  int64_t step = 0;

  explicit Training(dist::World& world) : augmentation(generator_of(100 + world.rank())) {
    const c10::NoGradGuard no_grad;
    auto generator = generator_of(1);
    for (auto& parameter : model->parameters()) {
      parameter.copy_(at::randn(parameter.sizes(), generator));
    }
    net = std::make_unique<DistributedDataParallel<torch::nn::Linear>>(model, world);
    optimizer = std::make_unique<Sgd>(model->named_parameters().pairs(), SgdOptions{.momentum = 0.9});
  }

  TrainState state(dist::World& world) {
    TrainState state(world);
    state.add("model", *net).add("optimizer", *optimizer).add("augmentation", augmentation).add("step", step);
    return state;
  }

  void run_to(int64_t end, dist::World& world) {
    for (; step < end; ++step) {
      auto generator = generator_of(1000 + step);
      const int64_t rows = kGlobalBatch / world.size(), first = rows * world.rank();
      const auto x = at::randn({kGlobalBatch, kNumFeatures}, generator).narrow(0, first, rows);
      at::rand({3}, augmentation);
      optimizer->zero_grad();
      at::mse_loss((*net)(x), x.narrow(1, 0, 2)).backward();
      optimizer->step(0.1);
    }
  }
};

TensorMap weights_of(const Training& training) {
  TensorMap weights;
  for (const auto& [name, tensor] : named_tensors(*training.model)) weights.emplace(name, tensor.detach().clone());
  return weights;
}

constexpr int64_t kStop = 4, kEnd = 9;

TEST(Resume, AnyNumberOfRanksGoesOnFromAnyOther) {
  const test::TemporaryFolder temporary;
  const fs::path root = temporary.path();
  // Oracle: one process that is never stopped.
  TensorMap expected;
  fakes::run_ranks(1, [&](dist::World& world) {
    Training training(world);
    training.run_to(kEnd, world);
    expected = weights_of(training);
  });
  for (const int saved_by : {1, 2, 4}) {
    const auto path = root / std::to_string(saved_by);
    std::vector<at::Tensor> next_numbers(static_cast<size_t>(saved_by));
    TensorMap uninterrupted;
    fakes::run_ranks(saved_by, [&](dist::World& world) {
      Training training(world);
      training.run_to(kStop, world);
      CheckpointFolder folder(path);
      folder.save_async(training.step, training.state(world));
      training.run_to(kEnd, world);  // continues while the checkpoint is written
      folder.finish();
      auto generator = training.augmentation;
      next_numbers[static_cast<size_t>(world.rank())] = at::rand({3}, generator);
      if (world.rank() == 0) uninterrupted = weights_of(training);
    });
    for (const int resumed_on : {1, 2, 4}) {
      fakes::run_ranks(resumed_on, [&](dist::World& world) {
        std::vector<std::string> warnings;
        const CheckpointFolder folder(path, {.warn = [&](const std::string& message) { warnings.push_back(message); }});
        Training training(world);
        auto state = training.state(world);
        ASSERT_TRUE(folder.load_latest(state));
        ASSERT_EQ(training.step, kStop);
        training.run_to(kEnd, world);

        // Ranks that the checkpoint contains continue their random numbers; new ranks keep their own generators.
        auto fresh = generator_of(100 + world.rank());
        at::rand({3 * (kEnd - kStop)}, fresh);
        const auto rank = static_cast<size_t>(world.rank());
        const auto numbers = rank < next_numbers.size() ? next_numbers[rank] : at::rand({3}, fresh);
        EXPECT_TRUE(at::rand({3}, training.augmentation).equal(numbers)) << "rank " << rank;
        if (saved_by != resumed_on && world.rank() == 0) {
          EXPECT_THAT(warnings, ElementsAre(HasSubstr("is for " + std::to_string(saved_by) + " ranks")));
        } else {
          EXPECT_TRUE(warnings.empty());
        }
        for (const auto& [name, tensor] : weights_of(training)) {
          EXPECT_TRUE(tensor.allclose(expected.at(name), 1e-4, 1e-5))
              << name << ": " << saved_by << " ranks, then " << resumed_on;
          if (saved_by == resumed_on) {
            EXPECT_TRUE(tensor.equal(uninterrupted.at(name))) << name << ": not bit for bit";
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace yoke::train

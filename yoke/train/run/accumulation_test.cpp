// A Run whose optimizer steps after several batches: gradients between them are no part of a checkpoint.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/mse_loss.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <csignal>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/run/run.h"

namespace yoke::train::accumulation {
namespace {

using testing::ElementsAre;

constexpr int64_t kSamples = 96, kBatch = 8, kSteps = kSamples / kBatch, kGroup = 4;
struct Killed {};

class Accumulation : public testing::Test {
 protected:
  Accumulation() {
    at::set_num_threads(1);
    std::signal(SIGINT, SIG_DFL);  // shells let jobs in the background ignore it
  }

  RunOptions options(const std::string& name, int64_t save_every, bool resume = false) const {
    return {.folder = std::filesystem::path(temporary_.path()) / name,
            .resume = resume,
            .save_every = save_every,
            .checkpoints = {.keep = 99}};
  }
  std::vector<int64_t> steps(const std::string& name) const {
    return CheckpointFolder(options(name, 0).folder).steps();
  }

  const test::TemporaryFolder temporary_;
};

struct Outcome {
  TensorMap weights;
  int64_t step = 0;
};

/// A training whose optimizer steps after each fourth batch. `on_step` is called after each batch.
Outcome train(dist::World& world, const RunOptions& options, const std::function<void(int64_t step)>& on_step = {},
              int64_t num_epochs = 3) {
  Run run(world, options);
  auto model = fakes::make_seeded(3, [] { return torch::nn::Linear(4, 1); });
  DistributedDataParallel net(model, world);
  AdamW optimizer(net, {.lr = 0.01});
  const auto x = at::arange(kSamples * 4).to(at::kFloat).view({kSamples, 4}).sin();
  Loader loader(Samples{.data = x, .target = x.sum(1, /*keepdim=*/true).contiguous()}, world,
                {.batch_size = kBatch / world.size(), .seed = 5});
  run.state().add("model", net).add("optimizer", optimizer);
  for (auto& epoch : run.epochs(loader, num_epochs)) {
    for (auto& batch : epoch) {
      const int64_t place = run.step() % kGroup;
      if (place == 0) optimizer.zero_grad();
      at::mse_loss(net(batch.data), batch.target).backward();
      if (place == kGroup - 1) optimizer.step();
      if (on_step) on_step(run.step());
    }
  }
  Outcome outcome{.weights = {}, .step = run.step()};
  for (const auto& [name, tensor] : named_tensors(*model)) outcome.weights.emplace(name, tensor.detach().clone());
  return outcome;
}

// Oracle: a run that is never interrupted.
TEST_F(Accumulation, ACheckpointWithinAGroupWaitsForItsStep) {
  Outcome whole, resumed;
  fakes::run_ranks(1, [&](dist::World& world) { whole = train(world, options("whole", 3)); });
  EXPECT_THAT(steps("whole"), ElementsAre(4, 8, 12, 16, 20, 24, 28, 32, 36));
  for (const int64_t kill_at : {6, 11, 18}) {
    const auto name = "killed-" + std::to_string(kill_at);
    const auto kill = [&](int64_t step) {
      if (step == kill_at) throw Killed();
    };
    EXPECT_THROW(fakes::run_ranks(1, [&](dist::World& world) { train(world, options(name, 1), kill); }), Killed);
    EXPECT_EQ(steps(name).back(), kill_at / kGroup * kGroup);
    fakes::run_ranks(1, [&](dist::World& world) { resumed = train(world, options(name, 0, /*resume=*/true)); });
    for (const auto& [key, tensor] : whole.weights) EXPECT_TRUE(at::equal(resumed.weights.at(key), tensor)) << kill_at;
  }
}

// Each of these tests needs a process of its own (BY_TEST), because a stop signal has effect until the process ends.
TEST_F(Accumulation, AStopInTheFirstGroupWaitsForItsStep) {
  fakes::run_ranks(1, [&](dist::World& world) {
    const auto outcome = train(world, options("first", 0), [](int64_t step) {
      if (step == 1) std::raise(SIGINT);
    });
    EXPECT_EQ(outcome.step, kGroup);
  });
  EXPECT_THAT(steps("first"), ElementsAre(kGroup));
}

TEST_F(Accumulation, AStopInALaterGroupWaitsForItsStep) {
  fakes::run_ranks(1, [&](dist::World& world) {
    const auto outcome = train(world, options("later", 0), [](int64_t step) {
      if (step == kSteps + 1) std::raise(SIGINT);
    });
    EXPECT_EQ(outcome.step, kSteps + kGroup);
  });
  EXPECT_THAT(steps("later"), ElementsAre(kSteps, kSteps + kGroup));
}

// Ranks agree on a stop some steps after the signal, and then on the end of the group.
TEST_F(Accumulation, AllRanksStopAtTheEndOfOneGroup) {
  constexpr int64_t kMany = 100;
  std::vector<int64_t> stopped(2);
  fakes::run_ranks(2, [&](dist::World& world) {
    const auto raise = [&](int64_t step) {
      if (step == kSteps + 1 && world.rank() == 1) std::raise(SIGINT);
    };
    stopped[static_cast<size_t>(world.rank())] = train(world, options("told", 0), raise, kMany).step;
  });
  EXPECT_EQ(stopped[0], stopped[1]);
  EXPECT_EQ(stopped[0] % kGroup, 0);
  EXPECT_GT(stopped[0], kSteps);
  EXPECT_LT(stopped[0], kMany * kSteps);
  EXPECT_EQ(steps("told").back(), stopped[0]);
}

}  // namespace
}  // namespace yoke::train::accumulation

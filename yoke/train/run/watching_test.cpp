// What a Run says about its steps.
#include <ATen/ops/arange.h>
#include <ATen/ops/mse_loss.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <string>
#include <thread>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/run/run.h"

namespace yoke::train {
namespace {

using namespace std::chrono_literals;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

/// A training on two ranks, of which the second one is late in forward.
struct LateRank {
  std::chrono::milliseconds late = 20ms;
  int64_t num_epochs = 1;
  int64_t steps_per_epoch = 74;
  int64_t num_steps = 1'000'000;  ///< The loop is left after so many, without the end of an epoch.
};

class Watching : public testing::Test {
 protected:
  /// What rank 0 prints.
  std::string shown(const LateRank& training, RunOptions options) {
    options.folder = folder_.path(std::to_string(++num_runs_));
    testing::internal::CaptureStdout();
    fakes::run_ranks(2, [&](dist::World& world) {
      yoke::train::Run run(world, options);
      auto model = fakes::make_seeded(3, [] { return torch::nn::Linear(4, 1); });
      DistributedDataParallel net(model, world);
      Sgd optimizer(net, {.lr = 0.01});
      const auto x = at::arange(4 * 4 * training.steps_per_epoch).to(at::kFloat).view({-1, 4}).sin();
      Loader loader(Samples{.data = x, .target = x.sum(1, true)}, world, {.batch_size = 2});
      run.state().add("model", net).add("optimizer", optimizer);
      for (auto& epoch : run.epochs(loader, training.num_epochs)) {
        for (auto& batch : epoch) {
          // clock: this is the delay to be found, and far more than what another program takes of a processor
          if (world.rank() == 1 && run.step() > 8) std::this_thread::sleep_for(training.late);
          optimizer.zero_grad();
          at::mse_loss(net(batch.data), batch.target).backward();
          optimizer.step();
          if (run.step() == training.num_steps) break;
        }
        if (run.step() != training.num_steps) continue;
        run.leave_without_saving();
        break;
      }
    });
    return testing::internal::GetCapturedStdout();
  }

  /// The same of three ranks, of which the last one has a broken batch in step 7.
  std::string shown_of_broken_batch(int64_t steps_per_epoch, int64_t num_steps, RunOptions options) {
    options.folder = folder_.path(std::to_string(++num_runs_));
    testing::internal::CaptureStdout();
    fakes::run_ranks(3, [&](dist::World& world) {
      yoke::train::Run run(world, options);
      auto model = fakes::make_seeded(3, [] { return torch::nn::Linear(4, 1); });
      DistributedDataParallel net(model, world);
      Sgd optimizer(net, {.lr = 0.01});
      const auto x = at::arange(6 * 4 * steps_per_epoch).to(at::kFloat).view({-1, 4}).sin();
      Loader loader(Samples{.data = x, .target = x.sum(1, true)}, world, {.batch_size = 2});
      run.state().add("model", net).add("optimizer", optimizer);
      for (auto& epoch : run.epochs(loader, 1)) {
        for (auto& batch : epoch) {
          const auto data = world.rank() == 2 && run.step() == 7 ? batch.data / 0 : batch.data;
          optimizer.zero_grad();
          const auto loss = at::mse_loss(net(data), batch.target);
          loss.backward();
          optimizer.step();
          run.log("loss", loss, 2);
          if (run.step() == num_steps) break;
        }
        if (run.step() != num_steps) continue;
        run.leave_without_saving();
        break;
      }
    });
    return testing::internal::GetCapturedStdout();
  }

 private:
  const test::TemporaryFolder folder_;
  int num_runs_ = 0;
};

TEST_F(Watching, NamesTheRankForWhichTheOthersWait) {
  const auto text = shown({.num_epochs = 2}, {});
  EXPECT_THAT(text, ContainsRegex("rank 1 is late by [0-9.]+ ms of each step of [0-9.]+ ms [(][0-9]+ %[)] "
                                  "since step [0-9]+, in forward; the others wait for it\n"));
  EXPECT_EQ(text.find("rank 1 is late"), text.rfind("rank 1 is late")) << "the second epoch says nothing new";
  EXPECT_THAT(shown({}, {.watch = false}), Not(HasSubstr("is late")));
}

// An epoch may take days. The loop is left before its end, where a Run says it in any case.
TEST_F(Watching, SaysItWithinALongEpoch) {
  const LateRank training{.late = 10ms, .steps_per_epoch = 200, .num_steps = 180};
  const auto text = shown(training, {.watch_every = 100ms});
  EXPECT_THAT(text, HasSubstr("rank 1 is late by"));
  EXPECT_EQ(text.find("rank 1 is late"), text.rfind("rank 1 is late")) << "later looks say nothing new";
  EXPECT_THAT(shown(training, {.watch_every = 1h}), Not(HasSubstr("is late")));
}

// One step later the losses of all ranks are no numbers, because gradients are means.
TEST_F(Watching, NamesTheRankWhoseLossWasTheFirstThatIsNoNumber) {
  constexpr const char* kFirst = "the first was loss in step 7, on rank 2 alone: look at its batch\n";
  EXPECT_THAT(shown_of_broken_batch(12, -1, {}),
              ContainsRegex(std::string("warning: loss is nan in epoch 1, so nothing .*; ") + kFirst));
  const auto text = shown_of_broken_batch(1000, 300, {.watch_every = 1ms});  // it is left in the first epoch
  const auto line = std::string("warning: not all figures are finite any more: ") + kFirst;
  EXPECT_THAT(text, HasSubstr(line));
  EXPECT_EQ(text.find(line), text.rfind(line)) << "later looks say nothing new";
}

}  // namespace
}  // namespace yoke::train

#include "yoke/train/run/run.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/mse_loss.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <optional>
#include <regex>
#include <thread>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/file.h"
#include "yoke/contract/progress.h"
#include "yoke/contract/variables.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/run/detail/run_folder.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kNumSamples = 96, kBatch = 8, kSteps = kNumSamples / kBatch, kEpochs = 3;

Samples some_samples() {
  const auto x = at::arange(kNumSamples * 4).to(at::kFloat).view({kNumSamples, 4}).sin();
  return {.data = x, .target = x.sum(1, /*keepdim=*/true).contiguous()};
}

struct Net : torch::nn::Module {
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  Net() {
    in = register_module("in", torch::nn::Linear(4, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    out = register_module("out", torch::nn::Linear(8, 1));
  }
  at::Tensor forward(const at::Tensor& x) { return out(norm(in(x)).relu()); }
};

/// The file in which this process, as if it were a rank, reports its steps.
std::string progress_file() {
  static const test::TemporaryFolder folder;
  return folder.path("progress");
}

/// The result of train(), a program with a Run that sets the learning rate by hand. `on_step(step)` may throw to end
/// the training. In step `save_at` it calls save().
struct Outcome {
  TensorMap weights;
  bool is_stopped = false;
  int64_t step = 0;
};
Outcome train(dist::World& world, const RunOptions& options, const std::function<void(int64_t step)>& on_step = {},
              int64_t num_epochs = kEpochs, int64_t save_at = -1) {
  Run run(world, options);
  run.fix("epochs", num_epochs);
  Net model = fakes::make_seeded(3, [] { return Net(); });
  DistributedDataParallel net(model, world);
  AdamW optimizer(net, {.lr = 0.01});
  Loader loader(some_samples(), world, {.batch_size = kBatch / world.size(), .seed = 5});
  run.state().add("model", net).add("optimizer", optimizer);
  for (auto& epoch : run.epochs(loader, num_epochs)) {
    for (auto& batch : epoch) {
      if (run.step() > 0 && run.step() % kSteps == 0) optimizer.set_lr(0.5 * optimizer.lr());
      const auto loss = at::mse_loss(net(batch.data), batch.target);
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
      run.log("loss", loss, batch.target.size(0));
      if (run.step() == save_at) run.save();
      if (on_step) on_step(run.step());
    }
    if (run.stopped()) break;
    run.log("last_step", static_cast<double>(run.step()));
  }
  run.finish();
  Outcome outcome{.weights = {}, .is_stopped = run.stopped(), .step = run.step()};
  for (const auto& [name, tensor] : named_tensors(model)) outcome.weights.emplace(name, tensor.detach().clone());
  return outcome;
}

class RunTest : public testing::Test {
 protected:
  RunTest() {
    at::set_num_threads(1);
    setenv(variable::kProgress, progress_file().c_str(), 1);  // the first report reads it
  }

  RunOptions options(const std::string& name, bool resume = false, int64_t save_every = 0) const {
    return {.folder = fs::path(temporary_.path()) / name,
            .resume = resume,
            .save_every = save_every,
            .checkpoints = {.warn = [](const std::string& message) { ADD_FAILURE() << message; }}};
  }
  /// Returns the columns of metrics.csv, except the two columns that contain times.
  std::vector<std::string> figures(const std::string& name) const {
    std::istringstream file(read_file(fs::path(temporary_.path()) / name / "metrics.csv"));
    std::vector<std::string> rows;
    for (std::string line; std::getline(file, line);) {
      rows.push_back(line.substr(0, line.rfind(',', line.rfind(',') - 1)));
    }
    return rows;
  }
  static void expect_same(const TensorMap& ours, const TensorMap& theirs) {
    ASSERT_EQ(ours.size(), theirs.size());
    for (const auto& [name, tensor] : theirs) EXPECT_TRUE(at::equal(ours.at(name), tensor)) << name;
  }

  const test::TemporaryFolder temporary_;
};

struct Killed {};

// Oracle: a run that is never interrupted. There is only one rank, because ranks in this test are threads, which would
// share one random generator.
TEST_F(RunTest, AKilledRunGoesOnToTheSameBitsAndFigures) {
  Outcome whole, resumed;
  fakes::run_ranks(1, [&](dist::World& world) { whole = train(world, options("whole")); });
  EXPECT_EQ(whole.step, kEpochs * kSteps);
  EXPECT_FALSE(whole.is_stopped);
  const auto rows = figures("whole");
  ASSERT_EQ(rows.size(), 1u + kEpochs);
  EXPECT_EQ(rows[0], "epoch,loss,last_step");
  EXPECT_THAT(rows[2], StartsWith("2,"));
  for (const int64_t kill_at : {2, 13, 12, 30}) {
    const auto name = "killed-" + std::to_string(kill_at);
    EXPECT_THROW(fakes::run_ranks(1,
                                  [&](dist::World& world) {
                                    train(world, options(name, false, 5), [&](int64_t step) {
                                      if (step == kill_at) throw Killed();
                                    });
                                  }),
                 Killed);
    EXPECT_EQ(read_progress(progress_file()), kill_at);
    fakes::run_ranks(1, [&](dist::World& world) { resumed = train(world, options(name, true)); });
    EXPECT_EQ(read_progress(progress_file()), kSteps * kEpochs);
    expect_same(resumed.weights, whole.weights);
    EXPECT_EQ(figures(name), rows) << kill_at;
  }
}

// Oracle: a run that is never interrupted. After the optimizer's step, the checkpoint is that of the next step.
TEST_F(RunTest, ASaveInTheLoopRepeatsNoStep) {
  Outcome whole, resumed;
  fakes::run_ranks(1, [&](dist::World& world) { whole = train(world, options("unsaved")); });
  for (const int64_t save_at : {int64_t{4}, kSteps - 1}) {
    const auto name = "saved-" + std::to_string(save_at);
    EXPECT_THROW(fakes::run_ranks(1,
                                  [&](dist::World& world) {
                                    const auto kill = [&](int64_t step) {
                                      if (step == save_at) throw Killed();
                                    };
                                    train(world, options(name), kill, kEpochs, save_at);
                                  }),
                 Killed);
    EXPECT_THAT(CheckpointFolder(options(name).folder).steps(), ElementsAre(save_at + 1));
    fakes::run_ranks(1, [&](dist::World& world) { resumed = train(world, options(name, true)); });
    expect_same(resumed.weights, whole.weights);
    auto rows = figures("unsaved");
    if (save_at == kSteps - 1) rows.erase(rows.begin() + 1);  // killed before the end of the epoch wrote its row
    EXPECT_EQ(figures(name), rows);
  }
}

TEST_F(RunTest, WritesEachValueForTensorBoard) {
  auto given = options("watched", false, 5);
  given.tensorboard = true;
  const auto stop_at_13 = [](int64_t step) {
    if (step == 13) throw Killed();
  };
  EXPECT_THROW(fakes::run_ranks(1, [&](dist::World& world) { train(world, given, stop_at_13); }), Killed);
  given.resume = true;
  fakes::run_ranks(1, [&](dist::World& world) { train(world, given); });
  std::vector<int64_t> num_losses, num_means;
  std::set<fs::path> files;
  for (const auto& file : fs::directory_iterator(given.folder / "events")) files.insert(file.path());
  for (const auto& file : files) {
    const auto bytes = read_file(file);
    const auto count = [&](const std::string& tag) {  // in the file, a tag follows its length
      int64_t number = 0;
      const auto text = static_cast<char>(tag.size()) + tag;
      for (size_t at = bytes.find(text); at != bytes.npos; at = bytes.find(text, at + 1)) ++number;
      return number;
    };
    num_losses.push_back(count("loss"));
    num_means.push_back(count("epoch/loss"));
  }
  // Steps 0 to 13; then the steps from 12 on, because the last checkpoint was saved after step 11, an epoch's end.
  EXPECT_THAT(num_losses, ElementsAre(14, kEpochs * kSteps - kSteps));
  EXPECT_THAT(num_means, ElementsAre(1, kEpochs - 1));
}

// Oracle: a run that is never interrupted. A killed and resumed run has the same losses, and each step occurs once.
TEST_F(RunTest, WritesEachStepOnceOverAResumption) {
  const auto values = [&](const std::string& name) {
    const auto text = read_file(fs::path(temporary_.path()) / name / "steps.jsonl");
    return std::regex_replace(text, std::regex(R"("time": [0-9.]*, )"), "");
  };
  auto whole = options("whole-steps"), killed = options("killed-steps", false, 5);
  whole.log_steps = killed.log_steps = true;
  fakes::run_ranks(1, [&](dist::World& world) { train(world, whole); });
  const auto kill_at_13 = [](int64_t step) {
    if (step == 13) throw Killed();
  };
  EXPECT_THROW(fakes::run_ranks(1, [&](dist::World& world) { train(world, killed, kill_at_13); }), Killed);
  EXPECT_THAT(values("killed-steps"), HasSubstr("{\"step\": 13, \"epoch\": 2, \"loss\": ")) << "also of the last steps";
  killed.resume = true;
  fakes::run_ranks(1, [&](dist::World& world) { train(world, killed); });
  const auto lines = values("whole-steps");
  EXPECT_EQ(std::ranges::count(lines, '\n'), kEpochs * kSteps + kEpochs);
  EXPECT_THAT(lines, HasSubstr("{\"step\": 12, \"epoch\": 1, \"last_step\": 12}\n{\"step\": 12, \"epoch\": 2, "));
  EXPECT_EQ(values("killed-steps"), lines);
  fakes::run_ranks(1, [&](dist::World& world) {
    yoke::train::Run run(world, {.folder = fs::path(temporary_.path()) / "names", .log_steps = true});
    EXPECT_THAT(message_of([&] { run.log("time", 1.0); }), HasSubstr("'time' cannot be the name of a figure"));
  });
}

TEST_F(RunTest, KeepsTheBestByAFigure) {
  fakes::run_ranks(1, [&](dist::World& world) {
    auto given = options("best");
    given.checkpoints.keep = 1;
    given.checkpoints.keep_best = 1;
    given.checkpoints.metric = "last_step";
    given.checkpoints.best = Best::kSmallest;
    train(world, given);
    EXPECT_THAT(CheckpointFolder(given.folder).steps(), ElementsAre(kSteps, kEpochs * kSteps));
  });
}

TEST_F(RunTest, RefusesAFigureOfTheBestThatNobodyLogs) {
  auto given = options("typo");
  given.checkpoints.keep_best = 1;
  given.checkpoints.metric = "accuracy";
  fakes::run_ranks(2, [&](dist::World& world) {
    EXPECT_THAT(message_of([&] { train(world, given); }, ErrorCode::kInvalidArgument),
                AllOf(HasSubstr("by 'accuracy'"), HasSubstr("only 'last_step', 'loss'")));
  });
  EXPECT_THAT(CheckpointFolder(given.folder).steps(), ElementsAre(kSteps));
  // With the right name the run goes on. Its first epoch's checkpoint has that figure already.
  given.checkpoints.metric = "loss";
  given.resume = true;
  fakes::run_ranks(2, [&](dist::World& world) { EXPECT_EQ(train(world, given).step, kEpochs * kSteps); });
}

TEST_F(RunTest, AFigureOfTheBestMayComeInLaterEpochs) {
  auto given = options("later");
  given.checkpoints.keep_best = 1;
  given.checkpoints.metric = "accuracy";
  const auto run_epochs = [&](int64_t count) {
    fakes::run_ranks(1, [&](dist::World& world) {
      yoke::train::Run run(world, given);
      Loader loader(some_samples(), world, {.batch_size = kBatch});
      for (auto& epoch : run.epochs(loader, count)) {
        for ([[maybe_unused]] auto& batch : epoch) {
        }
        const bool is_evaluated = run.epoch() == 1;
        if (is_evaluated || run.epoch() == 0) run.log("accuracy", at::full({}, 0.5), is_evaluated ? 1 : 0);
      }
    });
  };
  run_epochs(2);
  given.resume = true;
  run_epochs(3);  // whose only epoch logs nothing
  EXPECT_EQ(CheckpointFolder(given.folder, given.checkpoints).best_step(), 2 * kSteps);
}

/// Runs the loop of a training in which rank 0 alone does something in each step or after each epoch.
void log_on_one_rank(dist::World& world, const RunOptions& options, bool in_steps) {
  yoke::train::Run run(world, options);
  Loader loader(some_samples(), world, {.batch_size = kBatch / world.size()});
  for (auto& epoch : run.epochs(loader, 2)) {
    for (auto& batch : epoch) {
      run.log("loss", batch.data.mean());
      if (in_steps && world.rank() == 0) run.log("step_figure", 1.0);
    }
    if (world.rank() == 0) run.log("epoch_figure", 1.0);
  }
}

// Without the comparison, ranks wait for each other until the timeout, or the means of different figures are added.
TEST_F(RunTest, WhatOneRankLogsAloneIsNamedOnAllRanks) {
  for (const bool in_steps : {true, false}) {
    const auto given = options(in_steps ? "steps" : "epochs", false, /*save_every=*/5);
    std::vector<std::string> messages(2);
    fakes::run_ranks(2, [&](dist::World& world) {
      messages[static_cast<size_t>(world.rank())] = message_of([&] { log_on_one_rank(world, given, in_steps); });
    });
    for (const auto& message : messages) {
      EXPECT_THAT(message, HasSubstr(in_steps ? "rank 0 has logged 'step_figure' once, and rank 1 never"
                                              : "rank 0 has logged 'epoch_figure' once, and rank 1 never"));
    }
    // After an epoch, its work is saved. The first step has nothing to save.
    const auto saved = CheckpointFolder(given.folder).steps();
    EXPECT_EQ(saved.empty() ? 0 : saved.back(), in_steps ? 0 : kSteps);
  }
}

// The others have asked should_stop() instead, which waits for nobody, and are in the next step when they wait.
TEST_F(RunTest, ASaveOfOneRankAloneIsNamed) {
  std::vector<std::string> messages(2);
  const auto body = [&](dist::World& world) {
    try {
      train(world, options("alone"), {}, kEpochs, world.rank() == 0 ? 2 : -1);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      messages[static_cast<size_t>(world.rank())] = error.what();
      throw;
    }
  };
  EXPECT_THROW(fakes::run_ranks(2, body), Error);
  for (const auto& message : messages) {
    EXPECT_THAT(message, AllOf(HasSubstr("saving a checkpoint on rank 0"), HasSubstr("should_stop on rank 1"),
                               HasSubstr("rank 0 is at saving a checkpoint (collective ")));
  }
}

// A figure of only some epochs, as of an evaluation in every second epoch.
TEST_F(RunTest, WarnsOnceOfAFigureThatIsNoNumber) {
  testing::internal::CaptureStdout();
  fakes::run_ranks(1, [&](dist::World& world) {
    yoke::train::Run run(world, options("diverged", false));
    Loader loader(some_samples(), world, {.batch_size = kBatch});
    for (auto& epoch : run.epochs(loader, 3)) {
      for (auto& batch : epoch) run.log("loss", run.epoch() > 0 ? std::nan("") : 1.0 * batch.data.size(0));
    }
  });
  const auto out = testing::internal::GetCapturedStdout();
  const auto first = out.find("warning: loss is nan in epoch 2");
  EXPECT_NE(first, out.npos) << out;
  EXPECT_EQ(out.find("warning:", first + 1), out.npos) << out;
}

TEST_F(RunTest, AFigureMayBeMissingInAnEpoch) {
  const auto run_until = [&](const std::string& name, int64_t last_epoch, bool resume) {
    fakes::run_ranks(1, [&](dist::World& world) {
      yoke::train::Run run(world, options(name, resume));
      Loader loader(some_samples(), world, {.batch_size = kBatch});
      for (auto& epoch : run.epochs(loader, last_epoch)) {
        for (auto& batch : epoch) run.log("samples", static_cast<double>(batch.data.size(0)));
        if (run.epoch() % 2 == 1) run.log("odd", static_cast<double>(run.epoch()));
      }
    });
    return figures(name);
  };
  const auto rows = run_until("sparse", 4, false);
  EXPECT_THAT(rows, ElementsAre("epoch,samples,odd", "1,8,", "2,8,1", "3,8,", "4,8,3"));
  run_until("resumed", 1, false);
  EXPECT_EQ(run_until("resumed", 4, true), rows);
}

// The last row says that the training is complete. Here it cannot be written.
TEST_F(RunTest, TheLastCheckpointIsOnDiskBeforeItsRow) {
  const auto given = options("last");
  fs::create_directories(given.folder / "metrics.csv");
  EXPECT_THROW(fakes::run_ranks(1, [&](dist::World& world) { train(world, given, {}, /*num_epochs=*/1); }), Error);
  EXPECT_THAT(CheckpointFolder(given.folder).steps(), ElementsAre(kSteps));
}

TEST_F(RunTest, RefusesWhatWouldSpoilARun) {
  fakes::run_ranks(2, [&](dist::World& world) {
    train(world, options("run"), {}, 1);
    EXPECT_THAT(message_of([&] { yoke::train::Run(world, options("run")); }, ErrorCode::kFailedPrecondition),
                HasSubstr("holds checkpoints, of another run or of this one before a restart"));
    yoke::train::Run run(world, options("run", true));
    EXPECT_THAT(message_of([&] { yoke::train::Run(world, options("run", true)); }, ErrorCode::kUnavailable),
                HasSubstr("in use by another run"));
    EXPECT_THAT(message_of([&] { run.log("loss", at::full({16}, 0.5)); }),
                HasSubstr("'loss' takes one value and a weight of at least 0, not 16 values and 1"));
    int64_t epochs = 9;
    EXPECT_THAT(message_of([&] { run.fix("epochs", epochs, true); }),
                HasSubstr("epochs 9 was given, but the run to resume was started with 1"));
    EXPECT_THAT(message_of([&] { run.fix("seed", epochs, true); }), HasSubstr("does not say its 'seed'"));
    run.fix("epochs", epochs);
    EXPECT_EQ(epochs, 1);
    const auto samples = some_samples();
    Loader other({samples.data.slice(0, 0, 48), samples.target.slice(0, 0, 48)}, world,
                 {.batch_size = kBatch / 2, .seed = 5});
    EXPECT_THAT(message_of([&] { run.epochs(other, 1); }),
                HasSubstr("samples_per_epoch is 48, and that of the run to resume was 96"));
    Loader uneven({.data = at::zeros({3, 4}), .target = at::zeros({3, 1})}, world, {.batch_size = 1, .exact = true});
    EXPECT_THAT(message_of([&] { run.epochs(uneven, 1); }),
                HasSubstr("an epoch has 2 batches on rank 0 and 1 on rank 1, which would wait for each other"));
    EXPECT_THAT(message_of([&] { run.log("a,b", 1.0); }), HasSubstr("cannot be the name of a figure"));
  });
}

TEST_F(RunTest, ALoopThatIsLeftEarlyIsNoEpoch) {
  std::vector<std::string> warnings;
  auto given = options("left");
  given.checkpoints.warn = [&](const std::string& message) { warnings.push_back(message); };
  fakes::run_ranks(1, [&](dist::World& world) {
    yoke::train::Run run(world, given);
    Loader loader(some_samples(), world, {.batch_size = kBatch});
    const auto leave = [&] {
      for (auto& epoch : run.epochs(loader, 2)) {
        for (auto& batch : epoch) {
          if (batch.data.size(0) == kBatch && run.step() == 3) break;
        }
      }
    };
    EXPECT_THAT(message_of(leave, ErrorCode::kFailedPrecondition), HasSubstr("was left after 3 of 12"));
  });
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("an exception ended the loop of ")));
  EXPECT_THAT(warnings.front(), HasSubstr("within epoch 1: the steps after step 0 are not saved"));
}

// A training stops early, because a figure is good enough.
TEST_F(RunTest, ABreakEndsACompleteEpoch) {
  fakes::run_ranks(2, [&](dist::World& world) {
    yoke::train::Run run(world, options("early"));
    Loader loader(some_samples(), world, {.batch_size = kBatch / 2});
    for (auto& epoch : run.epochs(loader, 5)) {
      for (auto& batch : epoch) run.log("rank", static_cast<double>(world.rank()) + 0 * batch.data.size(0));
      if (run.epoch() == 1) break;  // the number of the epoch stays until its body has ended
    }
    EXPECT_EQ(run.epoch(), 2) << "complete ones";
    EXPECT_THAT(CheckpointFolder(options("early").folder).steps(), ElementsAre(kSteps, 2 * kSteps));
    run.finish();
    run.finish();
  });
  EXPECT_THAT(figures("early"), ElementsAre("epoch,rank", "1,0.5", "2,0.5"));
}

/// A program that ends after `max_steps` steps, out of both loops. Returns its weights.
at::Tensor train_for(dist::World& world, const RunOptions& options, int64_t max_steps) {
  yoke::train::Run run(world, options);
  torch::nn::Linear model = fakes::make_seeded(3, [] { return torch::nn::Linear(4, 1); });
  AdamW optimizer(*model, {.lr = 0.01});
  Loader loader(some_samples(), world, {.batch_size = kBatch, .seed = 5});
  run.state().add("model", model).add("optimizer", optimizer);
  for (auto& epoch : run.epochs(loader, kEpochs)) {
    bool is_enough = false;
    for (auto& batch : epoch) {
      optimizer.zero_grad();
      const auto loss = at::mse_loss(model(batch.data), batch.target);
      loss.backward();
      optimizer.step();
      run.log("loss", loss);
      is_enough = run.step() + 1 == max_steps;
      if (is_enough) break;
    }
    if (is_enough) break;
  }
  return model->weight.detach().clone();
}

// Oracle: a program that goes on at once.
TEST_F(RunTest, ABreakWithinAnEpochSavesItsLastStep) {
  at::Tensor whole, resumed;
  fakes::run_ranks(1, [&](dist::World& world) {
    whole = train_for(world, options("at-once"), 2 * kSteps);
    train_for(world, options("in-two"), kSteps + 3);
    EXPECT_THAT(CheckpointFolder(options("in-two").folder).steps(), ElementsAre(kSteps, kSteps + 3));
    resumed = train_for(world, options("in-two", true), 2 * kSteps);
  });
  EXPECT_TRUE(at::equal(resumed, whole));
  EXPECT_EQ(figures("in-two"), figures("at-once"));
  EXPECT_EQ(figures("in-two").size(), 3u) << "the break after the last batch ends the second epoch";
}

// The last checkpoint stays the newest one when the state has become bad. One rank's call holds for all.
TEST_F(RunTest, ABreakWithoutSavingKeepsTheLastCheckpoint) {
  for (const bool at_end : {false, true}) {
    const auto name = at_end ? "bad-epoch" : "bad-step";
    fakes::run_ranks(2, [&](dist::World& world) {
      yoke::train::Run run(world, options(name));
      Loader loader(some_samples(), world, {.batch_size = kBatch / 2});
      for (auto& epoch : run.epochs(loader, kEpochs)) {
        bool is_bad = false;
        for (auto& batch : epoch) {
          run.log("size", static_cast<double>(batch.data.size(0)));
          is_bad = run.step() == (at_end ? 2 * kSteps - 1 : kSteps + 3);
          if (is_bad && !at_end) break;
        }
        if (!is_bad) continue;
        if (world.rank() == 1) run.leave_without_saving();
        break;
      }
      run.finish();
    });
    EXPECT_THAT(CheckpointFolder(options(name).folder).steps(), ElementsAre(kSteps));
    EXPECT_THAT(figures(name), ElementsAre("epoch,size", "1,4"));
  }
}

// As in a pipeline, where an optimizer of yoke::train steps on some ranks alone.
TEST_F(RunTest, RanksThatDoNotStepSaveTheStepOfTheOthers) {
  fakes::run_ranks(2, [&](dist::World& world) {
    yoke::train::Run run(world, options("some-step"));
    const auto weight = at::zeros({2}).requires_grad_();
    Sgd optimizer(NamedTensors{{"weight", weight}}, {.lr = 0.1});
    Loader loader(some_samples(), world, {.batch_size = kBatch / 2});
    for (auto& epoch : run.epochs(loader, 1)) {
      for (auto& batch : epoch) {
        (weight.sum() * batch.data.sum()).backward();
        if (world.rank() == 1) optimizer.step();
        if (run.step() == 1) run.save();
        if (run.step() == 4) break;
      }
      break;
    }
    run.finish();
    EXPECT_EQ(run.step(), 5);
  });
  EXPECT_THAT(CheckpointFolder(options("some-step").folder).steps(), ElementsAre(2, 5));
}

// What goes wrong after a `break` must not be thrown by a destructor, and not be lost.
TEST_F(RunTest, AnErrorAfterABreakIsThrownByTheNextCall) {
  std::vector<std::string> warnings;
  auto given = options("no-folder");
  given.checkpoints.warn = [&](const std::string& message) { warnings.push_back(message); };
  fakes::run_ranks(1, [&](dist::World& world) {
    for (const bool has_next_call : {true, false}) {
      yoke::train::Run run(world, given);
      Loader loader(some_samples(), world, {.batch_size = kBatch});
      for (auto& epoch : run.epochs(loader, 5)) {
        for (auto& batch : epoch) run.log("size", static_cast<double>(batch.data.size(0)));
        fs::remove_all(given.folder);
        std::ofstream(given.folder) << "a file where the checkpoint's folder was";
        break;
      }
      if (has_next_call) {
        EXPECT_ANY_THROW(run.finish());
        run.finish();  // was reported
      }
      fs::remove(given.folder);
    }
  });
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("no-folder: after the loop was left: ")));
}

// This test comes last in its suite, because a stop signal has effect until the process ends.
TEST_F(RunTest, AllRanksThatAreToldStopAtOneStep) {
  constexpr int64_t kMany = 50;
  std::signal(SIGINT, SIG_DFL);  // shells let jobs in the background ignore it
  std::vector<Outcome> stopped(2);
  fakes::run_ranks(2, [&](dist::World& world) {
    stopped[static_cast<size_t>(world.rank())] = train(
        world, options("told"),
        [&](int64_t step) {
          if (step == kSteps + 2 && world.rank() == 1) std::raise(SIGINT);
        },
        kMany);
  });
  EXPECT_EQ(stopped[0].step, stopped[1].step);
  EXPECT_GT(stopped[0].step, kSteps);
  EXPECT_LT(stopped[0].step, kMany * kSteps);
  EXPECT_TRUE(stopped[0].is_stopped);
  EXPECT_EQ(CheckpointFolder(options("told").folder).steps().back(), stopped[0].step);
}

TEST(RunFolder, TwoRunsThatStartTogetherTakeTwo) {
  const test::TemporaryFolder temporary;
  const auto before = fs::current_path();
  fs::current_path(temporary.path());
  EXPECT_EQ(choose_run_folder("a", {}, false), "runs/a");
  EXPECT_EQ(choose_run_folder("a", {}, false), "runs/a-2");
  EXPECT_EQ(choose_run_folder("a", {}, true), "runs/a-2");
  EXPECT_EQ(choose_run_folder("b", {}, true), "runs/b") << "it begins";
  EXPECT_TRUE(fs::exists("runs/b"));
  EXPECT_EQ(choose_run_folder("b", {}, true), "runs/b");
  EXPECT_EQ(choose_run_folder("c", "new", true), "new");
  fs::current_path(before);
}

}  // namespace
}  // namespace yoke::train

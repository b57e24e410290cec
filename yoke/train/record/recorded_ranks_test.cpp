// Recorded steps of several ranks. Oracle: the same training whose steps are not recorded.
//
// Ranks are threads, which share the default random generator, so dropout draws from a generator of each rank here.
// tests/replace has ranks as processes.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>

#include "fakes/run_ranks.h"
#include "yoke/base/error.h"
#include "yoke/dist/world.h"
#include "yoke/train/detail/last_clip.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/parallel/sync_batch_norm.h"
#include "yoke/train/record/small_step_test.h"

namespace yoke::train {
namespace {

using dist::World;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
namespace nn = torch::nn;

constexpr int64_t kNumSteps = 20, kNumClasses = 5;

struct Net : nn::Module {
  nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
  nn::BatchNorm1d norm{nullptr};
  at::Generator generator;

  explicit Net(int64_t rank) : generator(at::detail::createCPUGenerator(static_cast<uint64_t>(rank))) {
    first = register_module("first", nn::Linear(6, 24));
    norm = register_module("norm", nn::BatchNorm1d(24));
    second = register_module("second", nn::Linear(24, 16));
    third = register_module("third", nn::Linear(16, kNumClasses));
    const at::NoGradGuard no_grad;
    for (auto& parameter : parameters()) {
      parameter.copy_((at::arange(parameter.numel()).to(at::kFloat) + 1).sin().reshape(parameter.sizes()) * 0.4);
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto hidden = norm(first(x)).relu();
    const auto dropped = hidden * at::empty_like(hidden).bernoulli_(0.8, generator) / 0.8;
    return third(second(dropped).tanh());
  }
};

/// What one rank does.
struct Plan {
  bool is_recorded = true, check = true;
  int64_t warm_up = 2;
  size_t max_plans = 8;
  std::function<int64_t(int64_t step)> batch_size = [](int64_t) { return 4; };
  bool reads_loss = false;  ///< In the step, which cannot be recorded then.
  /// In this call the step does something else than in the others.
  std::optional<int64_t> other_call;
};

struct Job {
  int64_t num_ranks = 2;
  DistributedDataParallelOptions ddp;
  bool net_clips = false;  ///< By the DistributedDataParallel, which keeps the norm for comparisons of replicas.
  enum class Accumulation { kNone, kInTheStep, kAroundTheStep } accumulation = Accumulation::kNone;
  std::function<Plan(int64_t rank)> plan = [](int64_t) { return Plan(); };
};

struct RankOutcome {
  std::vector<at::Tensor> values;  ///< Losses and norms of all steps; in the end all that the training has changed.
  int64_t num_recordings = 0, num_replays = 0;
  std::string why_not;
  std::vector<std::string> warnings;
};

RankOutcome train_rank(World& world, const Job& job, const Plan& plan) {
  RankOutcome outcome;
  Net model(world.rank());
  DistributedDataParallel<Net> net(model, world, job.ddp);
  AdamW optimizer(net.parameters(), {.lr = 0.01, .weight_decay = 0.1});
  int64_t num_calls = 0;
  const auto backward = [&](const at::Tensor& x, const at::Tensor& y) {
    const auto loss = torch::cross_entropy_loss(net(x), y);
    loss.backward();
    return loss;
  };
  const auto do_step = [&](const at::Tensor& x, const at::Tensor& y) -> std::vector<at::Tensor> {
    const bool is_other = plan.other_call == num_calls++;
    optimizer.zero_grad();
    if (job.accumulation == Job::Accumulation::kInTheStep) {
      const auto accumulating = net.no_sync();
      backward(x * 2, y);
      backward(x - 1, y);
    }
    const auto loss = backward(is_other ? x * 3 : x, y);
    if (plan.reads_loss) EXPECT_GT(loss.item<float>(), 0);
    const auto norm =
        job.net_clips ? net.clip_grad_norm(0.5) : clip_grad_norm(optimizer.parameters(), {.max_norm = 0.5});
    optimizer.step();
    return {loss, norm};
  };
  const auto do_micro_step = [&](const at::Tensor& x, const at::Tensor& y) { return backward(x, y); };
  RecordedOptions options{.warm_up = plan.warm_up, .check = plan.check, .max_plans = plan.max_plans};
  options.warn = [&](const std::string& message) { outcome.warnings.push_back(message); };
  Recorded recorded(do_step, options);
  Recorded recorded_micro_step(do_micro_step, options);
  for (int64_t i = 0; i < kNumSteps; ++i) {
    const int64_t size = plan.batch_size(i);
    const auto x =
        (at::arange(size * 6).to(at::kFloat) * static_cast<double>(1 + 3 * world.rank() + 7 * i)).cos().view({size, 6});
    const auto y = (at::arange(size) + world.rank() + i) % kNumClasses;
    optimizer.set_lr(0.02 / static_cast<double>(1 + i));
    if (job.accumulation == Job::Accumulation::kAroundTheStep) {
      // The gradients of two batches, of which the second one averages.
      const auto call = [&](const at::Tensor& part) {
        return plan.is_recorded ? recorded_micro_step(part, y) : do_micro_step(part, y).detach();
      };
      optimizer.zero_grad();
      {
        const auto accumulating = net.no_sync();
        outcome.values.push_back(call(x * 2).clone());
      }
      outcome.values.push_back(call(x).clone());
      optimizer.step();
      continue;
    }
    for (const auto& value : plan.is_recorded ? recorded(x, y) : do_step(x, y)) {
      outcome.values.push_back(value.detach().clone());
    }
    if (job.net_clips) outcome.values.push_back(detail::last_clip().norm.clone());
  }
  for (const auto& parameter : model.parameters()) {
    outcome.values.push_back(parameter.detach().clone());
    outcome.values.push_back(parameter.grad().clone());
  }
  for (const auto& buffer : model.buffers()) outcome.values.push_back(buffer.clone());
  for (const auto& [name, tensor] : optimizer.state_dict()) outcome.values.push_back(tensor.clone());
  outcome.values.push_back(model.generator.get_state());
  const bool is_around = job.accumulation == Job::Accumulation::kAroundTheStep;
  const RecordedBase& used = is_around ? static_cast<RecordedBase&>(recorded_micro_step) : recorded;
  outcome.num_recordings = used.num_recordings();
  outcome.num_replays = used.num_replays();
  outcome.why_not = used.why_not();
  return outcome;
}

std::vector<RankOutcome> train_ranks(const Job& job) {
  std::vector<RankOutcome> outcomes(static_cast<size_t>(job.num_ranks));
  fakes::run_ranks(job.num_ranks, [&](World& world) {
    outcomes[static_cast<size_t>(world.rank())] = train_rank(world, job, job.plan(world.rank()));
  });
  return outcomes;
}

/// Trains with the job's plans, and compares all ranks with a training in which nothing is recorded.
std::vector<RankOutcome> expect_same_bits(Job job) {
  auto outcomes = train_ranks(job);
  const auto plan = job.plan;
  job.plan = [&](int64_t rank) {
    auto eager = plan(rank);
    eager.is_recorded = false;
    return eager;
  };
  const auto expected = train_ranks(job);
  for (size_t rank = 0; rank < expected.size(); ++rank) {
    EXPECT_EQ(outcomes[rank].values.size(), expected[rank].values.size());
    for (size_t i = 0; i < std::min(outcomes[rank].values.size(), expected[rank].values.size()); ++i) {
      EXPECT_TRUE(same_bits(outcomes[rank].values[i], expected[rank].values[i]))
          << "rank " << rank << ", value " << i << " of " << expected[rank].values.size();
    }
  }
  return outcomes;
}

void expect_replays(const Job& job) {
  for (const auto& outcome : expect_same_bits(job)) {
    EXPECT_THAT(outcome.why_not, IsEmpty());
    EXPECT_THAT(outcome.warnings, IsEmpty());
    EXPECT_EQ(outcome.num_recordings, 1);
    EXPECT_EQ(outcome.num_replays, kNumSteps - 3);
  }
}

/// Buckets that several parameters share, and several buckets.
DistributedDataParallelOptions small_buckets() { return {.bucket_bytes = 700, .first_bucket_bytes = 300}; }

TEST(RecordedRanks, ClipByTheirNetwork) {
  for (const bool check : {false, true}) {
    expect_replays({.ddp = small_buckets(), .net_clips = true, .plan = [=](int64_t) { return Plan{.check = check}; }});
  }
}

TEST(RecordedRanks, HaveTheBitsOfTheStep) {
  for (const int64_t num_ranks : {2, 3}) {
    for (const bool check : {false, true}) {
      Job job{.num_ranks = num_ranks, .ddp = {}, .plan = [=](int64_t) { return Plan{.check = check}; }};
      expect_replays(job);
      job.ddp = small_buckets();
      expect_replays(job);
      job.ddp.gradient_as_bucket_view = true;
      expect_replays(job);
    }
  }
}

TEST(RecordedRanks, TakeOptionsOfDistributedDataParallel) {
  Job job{.ddp = small_buckets()};
  job.ddp.broadcast_buffers = false;
  expect_replays(job);
  job.ddp = {.ignored = {"norm.running_mean", "third.bias"}};
  expect_replays(job);
  expect_replays({.num_ranks = 1, .ddp = small_buckets()});
}

TEST(RecordedRanks, AccumulateGradientsInTheStep) {
  for (const bool views : {false, true}) {
    Job job{.num_ranks = 2, .ddp = small_buckets(), .accumulation = Job::Accumulation::kInTheStep};
    job.ddp.gradient_as_bucket_view = views;
    expect_replays(job);
  }
}

// Steps under no_sync() and those that average are two plans.
TEST(RecordedRanks, AccumulateGradientsAroundTheStep) {
  for (const int way : {0, 1, 2, 3}) {
    Job job{.num_ranks = 2, .ddp = small_buckets(), .accumulation = Job::Accumulation::kAroundTheStep};
    job.ddp.gradient_as_bucket_view = way % 2 == 1;
    if (way >= 2) job.plan = [](int64_t) { return Plan{.check = false, .warm_up = 0}; };
    for (const auto& outcome : expect_same_bits(job)) {
      EXPECT_THAT(outcome.why_not, IsEmpty()) << testing::PrintToString(outcome.warnings);
      EXPECT_LE(outcome.num_recordings, 4);  // again, until the gradients to which the second one adds are of a replay
      EXPECT_GE(outcome.num_replays, 2 * kNumSteps - 10);
    }
  }
}

// The all-reduces of both are in flight at once, and each of them waits for its own.
TEST(RecordedRanks, TrainTwoNetworksInOneBackward) {
  std::vector<std::vector<at::Tensor>> values(4);
  for (const bool is_recorded : {false, true}) {
    fakes::run_ranks(2, [&](World& world) {
      Net first_model(world.rank()), second_model(world.rank());
      DistributedDataParallel<Net> first(first_model, world, small_buckets()), second(second_model, world);
      AdamW optimizer(first.parameters()), other(second.parameters(), {.lr = 0.02});
      const auto do_step = [&](const at::Tensor& x, const at::Tensor& y) {
        optimizer.zero_grad();
        other.zero_grad();
        const auto loss = torch::cross_entropy_loss(first(x), y) + torch::cross_entropy_loss(second(x * 2), y);
        loss.backward();
        optimizer.step();
        other.step();
        return loss;
      };
      Recorded recorded(do_step);
      for (int64_t i = 0; i < kNumSteps; ++i) {
        const auto x =
            (at::arange(24).to(at::kFloat) * static_cast<double>(1 + 3 * world.rank() + 7 * i)).cos().view({4, 6});
        const auto y = (at::arange(4) + world.rank() + i) % kNumClasses;
        const auto loss = is_recorded ? recorded(x, y) : do_step(x, y).detach();
        values[static_cast<size_t>(2 * world.rank()) + (is_recorded ? 1 : 0)].push_back(loss.clone());
      }
      for (const auto* model : {&first_model, &second_model}) {
        for (const auto& parameter : model->parameters()) {
          values[static_cast<size_t>(2 * world.rank()) + (is_recorded ? 1 : 0)].push_back(parameter.detach().clone());
        }
      }
      EXPECT_THAT(recorded.why_not(), IsEmpty());
      EXPECT_EQ(recorded.num_replays(), is_recorded ? kNumSteps - 3 : 0);
    });
  }
  for (size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(values[2 * rank].size(), values[2 * rank + 1].size());
    for (size_t i = 0; i < values[2 * rank].size(); ++i) {
      EXPECT_TRUE(same_bits(values[2 * rank][i], values[2 * rank + 1][i])) << rank << ", " << i;
    }
  }
}

// In each step, some ranks replay, and others run, record or compare it.
TEST(RecordedRanks, NeedNotDoTheSame) {
  Job job{.num_ranks = 3, .ddp = small_buckets()};
  job.plan = [](int64_t rank) {
    Plan plan{.check = rank != 1, .warm_up = 2 + rank};
    if (rank == 1) plan.batch_size = [](int64_t step) { return step % 5 == 4 ? 3 : 4; };
    if (rank == 2) plan.batch_size = [](int64_t step) { return 4 + step % 3; };
    if (rank == 2) plan.max_plans = 2;
    return plan;
  };
  auto outcomes = expect_same_bits(job);
  for (const auto& outcome : outcomes) EXPECT_THAT(outcome.why_not, IsEmpty());
  EXPECT_EQ(outcomes[0].num_recordings, 1);
  EXPECT_EQ(outcomes[1].num_recordings, 2);
  EXPECT_EQ(outcomes[2].num_recordings, 2);
  EXPECT_GT(outcomes[2].num_replays, 5);

  job.plan = [](int64_t rank) { return Plan{.is_recorded = rank != 1, .warm_up = 0, .reads_loss = rank == 2}; };
  outcomes = expect_same_bits(job);
  EXPECT_GT(outcomes[0].num_replays, 10);
  EXPECT_THAT(outcomes[2].why_not, HasSubstr("aten::_local_scalar_dense gives the program a value"));
}

// Its first replay is not what the step does.
TEST(RecordedRanks, GoOnWhenOneOfThemGivesUp) {
  Job job{.num_ranks = 2, .ddp = small_buckets()};
  job.plan = [](int64_t rank) { return Plan{.other_call = rank == 1 ? std::optional<int64_t>(3) : std::nullopt}; };
  const auto outcomes = expect_same_bits(job);
  EXPECT_EQ(outcomes[0].num_replays, kNumSteps - 3);
  EXPECT_EQ(outcomes[1].num_replays, 1);
  EXPECT_THAT(outcomes[1].why_not,
              AllOf(HasSubstr("a replay gives other bits"), HasSubstr("what it gives to collective 1 of the step")));
}

constexpr std::chrono::milliseconds kSoon(1500);

/// Runs `body` on each rank and returns each rank's error; "" if it does not throw. No rank leaves before all have
/// finished.
std::vector<std::string> failures(int64_t num_ranks, const std::function<void(World&)>& body) {
  std::vector<std::string> messages(static_cast<size_t>(num_ranks));
  std::mutex mutex;
  std::condition_variable changed;
  int64_t num_done = 0;
  fakes::run_ranks(
      num_ranks,
      [&](World& world) {
        std::string message;
        try {
          body(world);
        } catch (const std::exception& error) {
          message = error.what();
        }
        std::unique_lock lock(mutex);
        messages[static_cast<size_t>(world.rank())] = message;
        ++num_done;
        changed.notify_all();
        changed.wait(lock, [&] { return num_done == num_ranks; });
      },
      kSoon);
  return messages;
}

/// Takes ten steps, `before` each of which it may throw.
void train_until(World& world, bool is_recorded, const std::function<void(int64_t step, at::Tensor& y)>& before) {
  Net model(world.rank());
  DistributedDataParallel<Net> net(model, world, small_buckets());
  AdamW optimizer(net.parameters());
  const auto do_step = [&](const at::Tensor& x, const at::Tensor& y) {
    optimizer.zero_grad();
    const auto loss = torch::cross_entropy_loss(net(x), y);
    loss.backward();
    optimizer.step();
    return loss;
  };
  Recorded recorded(do_step);
  for (int64_t i = 0; i < 10; ++i) {
    const auto x = at::arange(24).to(at::kFloat).view({4, 6}).sin();
    auto y = at::arange(4);
    before(i, y);
    if (is_recorded) {
      recorded(x, y);
      EXPECT_EQ(recorded.num_replays(), std::max<int64_t>(0, i - 2));
    } else {
      do_step(x, y);
    }
  }
}

// The last replay before the loss is compared in one case, and the lost one would be in another.
TEST(RecordedRanks, NameARankThatDoesNotArrive) {
  for (const int64_t last : {6, 7}) {
    std::vector<std::vector<std::string>> messages;
    for (const bool is_recorded : {false, true}) {
      messages.push_back(failures(2, [&](World& world) {
        train_until(world, is_recorded, [&](int64_t step, at::Tensor& /*y*/) {
          if (world.rank() == 1 && step == last) throw std::runtime_error("rank 1 stops");
        });
      }));
    }
    EXPECT_THAT(messages[0][0], AllOf(HasSubstr("timed out"), HasSubstr("rank 1")));
    EXPECT_EQ(messages[1], messages[0]);
  }
}

// As a label that is no class, which the loss refuses.
TEST(RecordedRanks, TellOthersWhyAReplayFails) {
  const auto messages = failures(2, [&](World& world) {
    train_until(world, /*is_recorded=*/true, [&](int64_t step, at::Tensor& y) {
      if (world.rank() == 1 && step == 8) y.fill_(kNumClasses + 2);
    });
  });
  EXPECT_THAT(messages[1], HasSubstr("out of bounds"));
  EXPECT_THAT(messages[0],
              AllOf(HasSubstr("rank 1: in step 9 of DistributedDataParallel"), HasSubstr("out of bounds")));
}

TEST(RecordedRanks, TellOthersThatEarlierReplaysMayHaveBeenWrong) {
  const auto messages = failures(2, [&](World& world) {
    const Job job{.num_ranks = 2, .ddp = small_buckets()};
    Plan plan;
    if (world.rank() == 1) plan.other_call = 4;  // that of the second comparison
    train_rank(world, job, plan);
  });
  EXPECT_THAT(messages[1], AllOf(HasSubstr("Recorded: replay 2 was compared with the step"),
                                 HasSubstr("what it gives to collective 1 of the step")));
  EXPECT_THAT(messages[0], HasSubstr("rank 1: in step 5 of DistributedDataParallel: Recorded: replay 2 was compared"));
}

TEST(RecordedRanks, NameACollectiveOfTheProgramInTheStep) {
  const auto messages = failures(2, [&](World& world) {
    train_until(world, /*is_recorded=*/true, [&](int64_t step, at::Tensor& /*y*/) {
      if (world.rank() == 1 && step == 7) world.barrier();
    });
  });
  // Rank 0 is in its step, the name of whose collectives is the same as that of a step that is not recorded.
  EXPECT_THAT(messages[0] + messages[1], AllOf(HasSubstr("a step of DistributedDataParallel"), HasSubstr("barrier")));
}

template <class Model>
std::string why_not(World& world, Model& model, const DistributedDataParallelOptions& options,
                    const std::function<void()>& after = nullptr) {
  DistributedDataParallel<Model> net(model, world, options);
  AdamW optimizer(net.parameters());
  Small small;
  Recorded recorded(
      [&](const at::Tensor& x, const at::Tensor& y) {
        optimizer.zero_grad();
        torch::cross_entropy_loss(net(x), y).backward();
        optimizer.step();
        if (after) after();
      },
      small.options);
  for (int i = 0; i < 6; ++i) recorded(at::arange(24).to(at::kFloat).view({4, 6}).sin(), at::arange(4));
  EXPECT_EQ(recorded.num_replays(), recorded.why_not().empty() ? 3 : 0);
  return recorded.why_not();
}

TEST(RecordedRanks, NameWhatCannotBeRecorded) {
  fakes::run_ranks(2, [](World& world) {
    Net model(world.rank());
    const auto refused = HasSubstr("communication of a DistributedDataParallel with");
    EXPECT_THAT(why_not(world, model, {.communication_hook = fp16_hook(world)}),
                AllOf(refused, HasSubstr("a communication_hook")));
    EXPECT_THAT(why_not(world, model, {.find_unused_parameters = true}),
                AllOf(refused, HasSubstr("find_unused_parameters")));
    EXPECT_THAT(why_not(world, model, {.static_graph = true}), AllOf(refused, HasSubstr("static_graph")));
    const auto flag = at::arange(1);
    EXPECT_THAT(why_not(world, model, {}, [&] { world.all_reduce(flag); }),
                AllOf(HasSubstr("c10d::allreduce_ communicates with other ranks"), HasSubstr("only the means")));
    nn::Sequential normed(nn::Linear(6, kNumClasses), SyncBatchNorm(kNumClasses));
    convert_sync_batch_norm(*normed, world);
    EXPECT_THAT(why_not(world, normed, {}), AllOf(refused, HasSubstr("a SyncBatchNorm")));
    EXPECT_THAT(why_not(world, model, {}), IsEmpty());
  });
}

TEST(RecordedRanks, NameAJoin) {
  fakes::run_ranks(2, [](World& world) {
    Net model(world.rank());
    DistributedDataParallel<Net> net(model, world);
    Small small;
    Recorded recorded([&](const at::Tensor& x) { net(x).square().mean().backward(); }, small.options);
    const auto x = at::arange(24).to(at::kFloat).view({4, 6}).sin();
    const auto call = [&] {
      for (auto& parameter : model.parameters()) parameter.mutable_grad().reset();
      recorded(x);
    };
    for (int i = 0; i < 6; ++i) call();
    EXPECT_EQ(recorded.num_replays(), 3);
    auto join = net.join();
    for (int64_t i = 0; i < 2 + world.rank(); ++i) call();
    join.finish();
    EXPECT_EQ(recorded.num_replays(), 3);
    EXPECT_THAT(recorded.why_not(), HasSubstr("a join"));
  });
}

}  // namespace
}  // namespace yoke::train

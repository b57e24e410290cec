#include "yoke/train/parallel/distributed_data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <functional>
#include <mutex>

#include "fakes/run_ranks.h"
#include "yoke/base/error.h"
#include "yoke/dist/gradient.h"

namespace yoke::train {
namespace {

using dist::World;
using fakes::run_ranks;
using testing::HasSubstr;
namespace nn = torch::nn;

/// A network that has several buckets if buckets are small. The same seed gives the same weights.
nn::Sequential make_model(uint64_t seed = 0) {
  return fakes::make_seeded(seed, [] {
    nn::Sequential model;
    model->push_back(nn::Linear(6, 16));
    model->push_back(nn::Linear(16, 16));
    model->push_back(nn::Linear(16, 2));
    return model;
  });
}

void descend(nn::Module& model, double lr) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) parameter.sub_(parameter.grad(), lr);
}

struct Problem {
  at::Tensor x = torch::sin(torch::arange(16 * 6).to(torch::kFloat)).reshape({16, 6});  // [batch, in]
  at::Tensor y = torch::cos(torch::arange(16 * 2).to(torch::kFloat)).reshape({16, 2});  // [batch, out]

  /// `net` is the model or its wrapper.
  template <class Net>
  at::Tensor loss(Net& net, int64_t first, int64_t rows) const {
    return torch::mse_loss(output_of(net, x.narrow(0, first, rows)), y.narrow(0, first, rows));
  }
  static at::Tensor output_of(nn::Sequential& model, const at::Tensor& input) { return model->forward(input); }
  template <class M>
  static at::Tensor output_of(DistributedDataParallel<M>& net, const at::Tensor& input) {
    return net(input);
  }
};

/// Returns the parameters after `steps` steps on `num_ranks` ranks, each with its share of the whole batch.
std::vector<at::Tensor> train_on(int64_t num_ranks, int steps, const DistributedDataParallelOptions& options = {}) {
  const Problem problem;
  std::vector<at::Tensor> result;
  run_ranks(num_ranks, [&](World& world) {
    auto model = make_model();
    DistributedDataParallel net(model, world, options);
    const int64_t rows = 16 / world.size();
    for (int i = 0; i < steps; ++i) {
      model->zero_grad();
      problem.loss(net, rows * world.rank(), rows).backward();
      descend(*model, 0.1);
    }
    if (world.rank() == 0) {
      for (const auto& parameter : model->parameters()) result.push_back(parameter.detach().clone());
    }
  });
  return result;
}

// Oracle: with a mean loss and equal shards, N ranks must give one process's gradient.
TEST(DistributedDataParallel, AnyNumberOfRanksGivesOneProcessesParameters) {
  const Problem problem;
  auto whole = make_model();
  for (int i = 0; i < 20; ++i) {
    whole->zero_grad();
    problem.loss(whole, 0, 16).backward();
    descend(*whole, 0.1);
  }
  for (const int64_t num_ranks : {1, 2, 4}) {
    const auto parameters = train_on(num_ranks, 20);
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(torch::allclose(parameters[i], whole->parameters()[i], 1e-4, 1e-6)) << num_ranks << " ranks, " << i;
    }
  }
}

// The network mixes all samples of the batch by a collective between its layers. In backward, the collectives of the
// layers' gradients are before and after its own.
TEST(DistributedDataParallel, GradientsPassACollectiveWithinTheNetwork) {
  const auto make_mixing = [](const std::function<at::Tensor(const at::Tensor& hidden)>& mean_of_batch) {
    return fakes::make_seeded(0, [&] {
      nn::Sequential model;
      model->push_back(nn::Linear(6, 16));
      model->push_back(nn::Functional([=](const at::Tensor& x) { return torch::tanh(x - mean_of_batch(x)); }));
      model->push_back(nn::Linear(16, 16));
      model->push_back(nn::Linear(16, 2));
      return model;
    });
  };
  const Problem problem;
  auto whole = make_mixing([](const at::Tensor& hidden) { return hidden.mean(0); });
  const auto train = [&](auto& net, nn::Sequential& model, int64_t first, int64_t rows) {
    for (int i = 0; i < 5; ++i) {
      model->zero_grad();
      problem.loss(net, first, rows).backward();
      descend(*model, 0.1);
    }
  };
  train(whole, whole, 0, 16);
  run_ranks(2, [&](World& world) {
    auto model = make_mixing(
        [&](const at::Tensor& hidden) { return dist::gradient::all_gather(world, hidden).flatten(0, 1).mean(0); });
    DistributedDataParallel net(model, world, {.bucket_bytes = 256, .first_bucket_bytes = 128});
    train(net, model, 8 * world.rank(), 8);
    for (size_t i = 0; i < model->parameters().size(); ++i) {
      EXPECT_TRUE(torch::allclose(model->parameters()[i], whole->parameters()[i], 1e-4, 1e-6)) << i;
    }
  });
}

// Trains two networks at once, one on the even ranks and one on the odd ranks. Each gives the same result as alone.
TEST(DistributedDataParallel, TrainsOnTheRanksOfAGroup) {
  const Problem problem;
  std::vector<at::Tensor> expected[2];
  for (const uint64_t half : {0, 1}) {
    auto alone = make_model(half);
    for (int i = 0; i < 10; ++i) {
      alone->zero_grad();
      problem.loss(alone, static_cast<int64_t>(half) * 8, 8).backward();
      descend(*alone, 0.1);
    }
    expected[half] = alone->parameters();
  }
  run_ranks(4, [&](World& world) {
    const int64_t half = world.rank() % 2;
    auto group = world.split(half);
    auto model = make_model(static_cast<uint64_t>(half) + (group.rank() == 0 ? 0 : 7));
    DistributedDataParallel net(model, group);
    for (int i = 0; i < 10; ++i) {
      model->zero_grad();
      problem.loss(net, 8 * half + 4 * group.rank(), 4).backward();
      descend(*model, 0.1);
    }
    for (size_t i = 0; i < expected[half].size(); ++i) {
      EXPECT_TRUE(torch::allclose(model->parameters()[i], expected[half][i], 1e-4, 1e-6)) << world.rank() << ", " << i;
    }
  });
}

TEST(DistributedDataParallel, NoOptionChangesABit) {
  const auto plain = train_on(2, 10);
  const auto small = train_on(2, 10, {.bucket_bytes = 256, .first_bucket_bytes = 128});
  const auto views = train_on(2, 10, {.gradient_as_bucket_view = true});
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(torch::equal(plain[i], small[i])) << i;
    EXPECT_TRUE(torch::equal(plain[i], views[i])) << i;
  }
}

TEST(DistributedDataParallel, TwoRunsAreEqualToTheLastBit) {
  const auto first = train_on(2, 10), second = train_on(2, 10);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(torch::equal(first[i], second[i])) << i;
}

TEST(DistributedDataParallel, AccumulatedGradientsAreAveragedOnce) {
  const Problem problem;
  auto whole = make_model();
  (problem.loss(whole, 0, 16) * 2).backward();  // two half-batches per rank, each with its own mean
  run_ranks(2, [&](World& world) {
    auto model = make_model();
    DistributedDataParallel net(model, world);
    for (int round = 0; round < 3; ++round) {  // buckets are rebuilt in the second round
      model->zero_grad();
      {
        const auto no_sync = net.no_sync();
        problem.loss(net, 8 * world.rank(), 4).backward();
      }
      problem.loss(net, 8 * world.rank() + 4, 4).backward();
      for (size_t i = 0; i < model->parameters().size(); ++i) {
        EXPECT_TRUE(torch::allclose(model->parameters()[i].grad(), whole->parameters()[i].grad(), 1e-4, 1e-6)) << i;
      }
    }
  });
}

TEST(DistributedDataParallel, EveryRankStartsFromRankZero) {
  const auto expected = make_model(0);
  run_ranks(3, [&](World& world) {
    auto model = make_model(static_cast<uint64_t>(world.rank()));
    const DistributedDataParallel net(model, world);
    for (size_t i = 0; i < model->parameters().size(); ++i) {
      EXPECT_TRUE(torch::equal(model->parameters()[i], expected->parameters()[i]));
    }
  });
}

// After each backward, buffers are made equal on all ranks, so that all ranks evaluate and save the same model.
TEST(DistributedDataParallel, BuffersFollowRankZero) {
  run_ranks(2, [&](World& world) {
    const auto x = torch::arange(12).to(torch::kFloat).reshape({4, 3}) * (world.rank() + 1);
    nn::BatchNorm1d model(nn::BatchNorm1dOptions(3).momentum(1.0));
    DistributedDataParallel each_step(model, world);
    for (int i = 0; i < 2; ++i) {
      each_step(x).sum().backward();
      EXPECT_TRUE(torch::allclose(model->running_mean, torch::tensor({4.5, 5.5, 6.5}))) << model->running_mean;
    }

    nn::BatchNorm1d other(nn::BatchNorm1dOptions(3).momentum(1.0));
    DistributedDataParallel on_demand(other, world, {.broadcast_buffers = false});
    on_demand(x).sum().backward();
    EXPECT_TRUE(torch::allclose(other->running_mean, torch::tensor({4.5, 5.5, 6.5}) * (world.rank() + 1)));
    on_demand.sync_buffers();
    EXPECT_TRUE(torch::allclose(other->running_mean, torch::tensor({4.5, 5.5, 6.5})));
  });
}

TEST(DistributedDataParallel, FrozenParametersStayOut) {
  run_ranks(2, [&](World& world) {
    auto model = make_model();
    model->parameters()[0].set_requires_grad(false);
    DistributedDataParallel net(model, world);
    for (int i = 0; i < 2; ++i) {
      model->zero_grad();
      Problem().loss(net, 0, 8).backward();
    }
    EXPECT_FALSE(model->parameters()[0].grad().defined());
    EXPECT_TRUE(model->parameters()[1].grad().defined());
  });
}

TEST(DistributedDataParallel, ModelsThatDifferAreNamedOnEveryRank) {
  std::mutex mutex;
  std::vector<std::string> messages;
  run_ranks(3, [&](World& world) {
    nn::Linear model(3, world.rank() == 2 ? 2 : 1);
    try {
      const DistributedDataParallel net(model, world);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      messages.push_back(error.what());
    }
  });
  ASSERT_EQ(messages.size(), 3u);
  for (const auto& message : messages) {
    EXPECT_THAT(message,
                HasSubstr("on rank 2 it has 'weight Float [2, 3] trained' where rank 0 has 'weight Float [1, 3]"));
  }
}

TEST(DistributedDataParallel, AParameterMoreOnARankIsSaidToBeOne) {
  run_ranks(2, [&](World& world) {
    nn::Sequential model(nn::Linear(3, 1));
    if (world.rank() == 1) model->push_back("extra", nn::Linear(1, 4));
    try {
      const DistributedDataParallel net(model, world);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("on rank 1 it has 'extra.weight Float [4, 1] trained', which rank 0 lacks"));
    }
  });
}

// If ranks had different memory orders, an element of a gradient would be averaged with a different element.
TEST(DistributedDataParallel, LayoutsThatDifferAreNamed) {
  run_ranks(2, [&](World& world) {
    nn::Conv2d model(nn::Conv2dOptions(2, 2, 2));
    if (world.rank() == 1) model->weight.set_data(model->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
    try {
      const DistributedDataParallel net(model, world);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("'weight Float [2, 2, 2, 2] strides [8, 1, 4, 2] trained'"));
    }
  });
}

TEST(DistributedDataParallel, AParameterThatIsTrainedLaterIsNamed) {
  run_ranks(2, [&](World& world) {
    nn::Linear model(3, 1);
    model->bias.set_requires_grad(false);
    DistributedDataParallel net(model, world);
    model->bias.set_requires_grad(true);
    try {
      net(torch::ones({2, 3}));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      EXPECT_THAT(error.what(), HasSubstr("'bias' requires a gradient, which would not be averaged"));
    }
  });
}

TEST(DistributedDataParallel, RefusesWhatCannotWork) {
  World world(RankEnv{}, {.device = c10::Device(c10::kCPU)});
  nn::Linear frozen(3, 1);
  for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  EXPECT_THROW(DistributedDataParallel(frozen, world), Error);
  world.shutdown();
}

TEST(DistributedDataParallel, ARankThatStopsIsNamedByTheOthers) {
  std::string message;
  std::atomic<bool> gave_up = false;
  run_ranks(
      2,
      [&](World& world) {
        auto model = make_model();
        DistributedDataParallel net(model, world);
        if (world.rank() == 1) {  // rank 1 does not take this step, and leaves when rank 0 has timed out
          gave_up.wait(false);
          return;
        }
        try {
          Problem().loss(net, 0, 8).backward();
        } catch (const Error& error) {
          message = error.what();
        }
        gave_up = true;
        gave_up.notify_all();
      },
      std::chrono::seconds(5));
  EXPECT_THAT(message, HasSubstr("rank 1 has not arrived"));
}

// Rank 0 alone saves in the loop, while the others are in a backward: both end long before the timeout.
TEST(DistributedDataParallel, ACollectiveOfOneRankThatMeetsABackwardIsNamed) {
  std::mutex mutex;
  std::vector<std::string> messages;
  EXPECT_THROW(run_ranks(
                   3,
                   [&](World& world) {
                     auto model = make_model();
                     DistributedDataParallel net(model, world);
                     try {
                       for (int i = 0; i < 2; ++i) Problem().loss(net, 0, 8).backward();
                       if (world.rank() == 0) world.all_gather_text("saving");
                       Problem().loss(net, 0, 8).backward();
                     } catch (const Error& error) {
                       const std::lock_guard lock(mutex);
                       messages.emplace_back(error.what());
                       throw;
                     }
                   },
                   std::chrono::minutes(10)),
               Error);
  ASSERT_EQ(messages.size(), 3u);
  for (const auto& message : messages) {
    EXPECT_THAT(message, HasSubstr("rank 0 is at an exchange of texts (collective "));
    EXPECT_THAT(message, HasSubstr("ranks 1 and 2 are at a step of DistributedDataParallel (collective "));
  }
}

// A GAN: each network is wrapped, and the generator's step goes through both.
TEST(DistributedDataParallel, TwoNetworksInOneGraphAreAveragedEach) {
  run_ranks(2, [](World& world) {
    nn::Linear generator(3, 3), discriminator(3, 1);
    DistributedDataParallel g(generator, world), d(discriminator, world);
    for (int i = 0; i < 3; ++i) {
      const auto noise = torch::ones({2, 3}) * (world.rank() + 1 + i);
      (d(g(noise).detach()).sum() - d(noise).sum()).backward();
      descend(*discriminator, 0.01);
      discriminator->zero_grad();
      generator->zero_grad();
      d(g(noise)).sum().backward();
      descend(*generator, 0.01);
      discriminator->zero_grad();
    }
    for (const auto& parameter : {generator->weight, discriminator->weight}) {
      const auto all = world.all_gather(parameter.detach());
      EXPECT_TRUE(torch::equal(all[0], all[1]));
    }
  });
}

struct TwoHeads : nn::Module {
  struct Output {
    at::Tensor label;
    std::vector<at::Tensor> boxes;
    template <class Take>
    void each_tensor(const Take& take) const {
      take(label);
      for (const auto& box : boxes) take(box);
    }
  };
  nn::Linear first{nullptr}, second{nullptr};
  TwoHeads() {
    first = register_module("first", nn::Linear(3, 1));
    second = register_module("second", nn::Linear(3, 2));
  }
  Output forward(const at::Tensor& x) { return {first(x), {second(x)}}; }
};

TEST(DistributedDataParallel, ForwardMayReturnWhateverHoldsTensors) {
  run_ranks(2, [](World& world) {
    TwoHeads model;
    DistributedDataParallel net(model, world);
    const auto output = net(torch::ones({2, 3}) * (world.rank() + 1));
    (output.label.sum() + output.boxes[0].sum()).backward();
    EXPECT_TRUE(torch::allclose(model.first->weight.grad(), torch::full({1, 3}, 3.0)));
  });
}

TEST(DistributedDataParallel, AnErrorInForwardReachesTheOtherRanks) {
  struct Picky : nn::Module {
    nn::Linear linear{nullptr};
    Picky() { linear = register_module("linear", nn::Linear(3, 1)); }
    at::Tensor forward(const at::Tensor& x) {
      if (x.size(0) == 1) throw std::runtime_error("a batch of one sample");
      return linear(x);
    }
  };
  std::string message;
  std::atomic<bool> is_over = false;
  run_ranks(
      2,
      [&](World& world) {
        Picky model;
        DistributedDataParallel net(model, world);
        try {
          net(torch::ones({world.rank() == 1 ? 1 : 2, 3})).sum().backward();
        } catch (const Error& error) {
          message = error.what();
          is_over = true;
          is_over.notify_all();
        } catch (const std::runtime_error&) {
          is_over.wait(false);
        }
      },
      std::chrono::seconds(5));
  EXPECT_THAT(message, HasSubstr("rank 1: a batch of one sample"));
}

}  // namespace
}  // namespace yoke::train

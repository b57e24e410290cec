#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <condition_variable>
#include <mutex>
#include <sstream>

#include "fakes/run_ranks.h"
#include "yoke/base/error.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/parallel/power_sgd.h"
#include "yoke/train/parallel/sync_batch_norm.h"

namespace yoke::train {
namespace {

using dist::World;
using fakes::run_ranks;
using testing::AllOf;
using testing::HasSubstr;
namespace nn = torch::nn;

constexpr std::chrono::milliseconds kSoon(1500);

/// Two layers; a step may skip the second one.
struct Net : nn::Module {
  nn::Linear first{nullptr}, second{nullptr};

  Net() {
    first = register_module("first", nn::Linear(6, 8));
    second = register_module("second", nn::Linear(8, 8));
    const torch::NoGradGuard no_grad;  // fixed values: ranks are threads that share one generator
    for (auto& parameter : parameters()) {
      parameter.copy_(torch::sin(torch::arange(parameter.numel())).reshape(parameter.sizes()));
    }
  }

  /// Returns the loss, [].
  at::Tensor forward(const at::Tensor& x, bool with_second = true) {
    const auto hidden = torch::tanh(first(x));
    return (with_second ? second(hidden) : hidden).square().mean();
  }
};

at::Tensor batch(int64_t rank, int64_t step) {
  return torch::cos(torch::arange(4 * 6).to(torch::kFloat) * (1 + 3 * rank + 7 * step)).reshape({4, 6});
}

void descend(nn::Module& model) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) {
    if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 0.1);
  }
}

void expect_equal(const nn::Module& model, const nn::Module& expected, double tolerance = 0) {
  for (size_t i = 0; i < expected.parameters().size(); ++i) {
    EXPECT_TRUE(torch::allclose(model.parameters()[i], expected.parameters()[i], tolerance, tolerance)) << i;
  }
}

/// Runs `body` on each rank and returns each rank's error; "" if it does not throw. No rank leaves before all have
/// finished.
std::vector<std::string> failures(int64_t num_ranks, const std::function<void(World&)>& body) {
  std::vector<std::string> messages(static_cast<size_t>(num_ranks));
  std::mutex mutex;
  std::condition_variable changed;
  int64_t num_done = 0;
  run_ranks(
      num_ranks,
      [&](World& world) {
        std::string message;
        try {
          body(world);
        } catch (const Error& error) {
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

World alone() { return World(RankEnv{}, {.device = c10::Device(c10::kCPU)}); }

/// On one rank, takes a step for each entry of `with_second`. Returns the message of the error that ends the steps.
std::string error_of_steps(const DistributedDataParallelOptions& options, const std::vector<bool>& with_second) {
  auto world = alone();
  Net model;
  DistributedDataParallel net(model, world, options);
  try {
    for (const bool with : with_second) {
      model.zero_grad();
      net(batch(0, 0), with).backward();
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    return error.what();
  }
  return "";
}

TEST(DdpDiagnostics, AnUnusedParameterIsNamedOnEveryRank) {
  for (const int64_t bad_step : {0, 2}) {  // once with the bucket of the first step, and once with the rebuilt buckets
    const auto messages = failures(3, [&](World& world) {
      Net model;
      DistributedDataParallel net(model, world, {.bucket_bytes = 64, .first_bucket_bytes = 64});
      for (int64_t i = 0; i < 4; ++i) {
        model.zero_grad();
        net(batch(world.rank(), i), world.rank() != 1 || i != bad_step).backward();
      }
    });
    for (const auto& message : messages) {
      EXPECT_THAT(message, AllOf(HasSubstr("rank 1: in step " + std::to_string(bad_step + 1)),
                                 HasSubstr("'second.weight', 'second.bias'"), HasSubstr("find_unused_parameters")));
    }
  }
}

TEST(DdpDiagnostics, ASkippedStepIsNamedOnEveryRank) {
  const auto messages = failures(3, [&](World& world) {
    Net model;
    DistributedDataParallel net(model, world);
    for (int64_t i = 0; i < 4; ++i) {
      if (world.rank() == 1 && i == 2) continue;
      model.zero_grad();
      net(batch(world.rank(), i)).backward();
    }
    world.shutdown();
  });
  EXPECT_THAT(messages[0], HasSubstr("rank 1 has not arrived"));
  EXPECT_THAT(messages[2], HasSubstr("rank 1 has not arrived"));
  EXPECT_THAT(messages[1], HasSubstr("rank 0 is at collective 9 and this rank has entered 8: it has skipped some"));
}

TEST(DdpDiagnostics, AnErrorInBackwardReachesTheOtherRanks) {
  const auto messages = failures(2, [&](World& world) {
    Net model;
    DistributedDataParallel net(model, world);
    auto loss = net(batch(world.rank(), 0));
    if (world.rank() == 1) {
      loss.register_hook([](const at::Tensor&) { throw std::runtime_error("the disk of this node is full"); });
    }
    try {
      loss.backward();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      EXPECT_EQ(world.rank(), 1) << error.what();
    }
  });
  EXPECT_THAT(messages[0], HasSubstr("rank 1: in step 1 of DistributedDataParallel an exception ended the backward"));
}

// torch::load gives parameters other tensors' data and gradients, which nothing averages.
TEST(DdpDiagnostics, WeightsThatTorchLoadReplacesAreNamed) {
  auto world = alone();
  const auto model = std::make_shared<Net>();
  DistributedDataParallel net(*model, world);
  std::stringstream file;
  torch::save(model, file);
  net(batch(0, 0)).backward();
  auto loaded = model;
  torch::load(loaded, file);
  try {
    net(batch(0, 1));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'first.weight' was replaced"), HasSubstr("load_module")));
  }
}

TEST(DdpDiagnostics, AStaticGraphThatChangesIsNamed) {
  EXPECT_EQ(error_of_steps({.static_graph = true}, {true, true, true, true}), "");
  EXPECT_EQ(error_of_steps({.static_graph = true}, {false, false, false, false}), "");
  EXPECT_THAT(error_of_steps({.static_graph = true}, {true, true, false}),
              AllOf(HasSubstr("in step 3"), HasSubstr("the first step used 'second.weight', 'second.bias'")));
  EXPECT_THAT(
      error_of_steps({.static_graph = true}, {false, true}),
      AllOf(HasSubstr("in step 2"), HasSubstr("the first step did not use 'second."), HasSubstr("and this one does")));
}

TEST(DdpDiagnostics, ALossOfNoParameterIsNamed) {
  for (const bool find_unused : {false, true}) {
    auto world = alone();
    Net model;
    DistributedDataParallel net(model, world, {.find_unused_parameters = find_unused});
    const auto other = torch::ones({1}, torch::requires_grad());
    const auto loss = net.run([&] { return other.sum(); });
    EXPECT_THROW(loss.backward(), Error);
  }
}

TEST(DdpOptions, OneThatIsToBeIgnoredMustExist) {
  auto world = alone();
  Net model;
  try {
    const DistributedDataParallel net(model, world, {.ignored = {"first.bias", "third.weight"}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'third.weight' is to be ignored"));
  }
}

TEST(DdpOptions, ParametersThatModulesShareAreAveragedOnce) {
  struct Twice : nn::Module {
    std::shared_ptr<Net> net = std::make_shared<Net>();
    Twice() {
      register_module("a", net);
      register_module("b", net);
    }
    at::Tensor forward(const at::Tensor& x) { return net->forward(x); }
  };
  run_ranks(2, [](World& world) {
    Twice twice;
    DistributedDataParallel net(twice, world);
    net(batch(0, 0)).backward();
    Net one;
    one.forward(batch(0, 0)).backward();
    EXPECT_TRUE(torch::allclose(twice.net->first->weight.grad(), one.first->weight.grad()));
  });
}

/// Parameters after 6 steps of two micro-batches each, on two ranks.
std::vector<at::Tensor> accumulate(const std::function<DistributedDataParallelOptions(World&)>& options) {
  std::vector<at::Tensor> result;
  run_ranks(2, [&](World& world) {
    Net model;
    DistributedDataParallel net(model, world, options(world));
    for (int64_t i = 0; i < 6; ++i) {
      model.zero_grad();
      {
        const auto no_sync = net.no_sync();
        net(batch(world.rank(), 2 * i)).backward();
      }
      net(batch(world.rank(), 2 * i + 1)).backward();
      descend(model);
    }
    if (world.rank() == 0) result = model.parameters();
  });
  return result;
}

TEST(DdpOptions, EachAccumulates) {
  const auto expected = accumulate([](World&) { return DistributedDataParallelOptions(); });
  const auto expect_same = [&](const std::function<DistributedDataParallelOptions(World&)>& options, const char* name) {
    const auto actual = accumulate(options);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(torch::equal(actual[i], expected[i])) << name;
  };
  expect_same([](World&) { return DistributedDataParallelOptions{.static_graph = true}; }, "static");
  expect_same([](World&) { return DistributedDataParallelOptions{.find_unused_parameters = true}; }, "find unused");
  expect_same([](World&) { return DistributedDataParallelOptions{.gradient_as_bucket_view = true}; }, "views");
}

TEST(DdpOptions, AStaticGraphIsLearnedInTheFirstStepThatHasABackward) {
  auto world = alone();
  Net model;
  DistributedDataParallel net(model, world, {.static_graph = true});
  net(batch(0, 0));
  for (int i = 0; i < 3; ++i) {
    net(batch(0, 0)).backward();
  }
}

// If no rank has used a parameter, its gradient does not change. Here it stays undefined, so an optimizer skips the
// parameter.
TEST(DdpOptions, WhatNoRankUsedKeepsItsGradient) {
  run_ranks(2, [](World& world) {
    Net model;
    DistributedDataParallel net(model, world, {.find_unused_parameters = true});
    for (int64_t i = 0; i < 3; ++i) {
      model.zero_grad();
      net(batch(world.rank(), i), /*with_second=*/i == 1 && world.rank() == 0).backward();
      EXPECT_TRUE(model.first->weight.grad().defined());
      EXPECT_EQ(model.second->weight.grad().defined(), i == 1) << i;
    }
  });
}

TEST(CommunicationHooks, TheUsersOwnTakesThePlaceOfTheAllReduce) {
  run_ranks(2, [](World& world) {
    Net plain, hooked;
    DistributedDataParallel plain_net(plain, world, {.bucket_bytes = 64, .first_bucket_bytes = 64});
    std::vector<std::string> calls;
    const auto hook = [&](const GradientBucket& bucket) -> std::function<at::Tensor()> {
      calls.push_back(bucket.is_last() ? "start last" : "start");
      EXPECT_EQ(bucket.gradients().size(), bucket.parameters().size());
      EXPECT_EQ(bucket.gradients()[0].sizes(), bucket.parameters()[0].sizes());
      auto mean = bucket.flat() / world.size();
      return [&, mean, wait = start_all_reduce(world, mean)] {
        calls.push_back("finish");
        wait();
        return mean;
      };
    };
    DistributedDataParallel hooked_net(hooked, world,
                                       {.bucket_bytes = 64, .first_bucket_bytes = 64, .communication_hook = hook});
    for (int64_t i = 0; i < 3; ++i) {
      calls.clear();
      for (auto* net : {&plain_net, &hooked_net}) {
        net->model().zero_grad();
        (*net)(batch(world.rank(), i)).backward();
        descend(net->model());
      }
    }
    expect_equal(hooked, plain);
    // Communication starts while backward runs: all buckets are sent before the code waits for the first one.
    ASSERT_GE(calls.size(), 4u);
    EXPECT_EQ(calls[0], "start");
    EXPECT_EQ(calls[calls.size() / 2 - 1], "start last");
    EXPECT_EQ(calls[calls.size() / 2], "finish");
  });
}

TEST(CommunicationHooks, LeaveSparseGradientsExact) {
  for (const auto& make_hook : {fp16_hook, bf16_hook}) {
    run_ranks(2, [&](World& world) {
      nn::Embedding words(nn::EmbeddingOptions(10, 3).sparse(true));
      DistributedDataParallel net(words, world, {.communication_hook = make_hook(world)});
      (net(torch::tensor({int64_t{1}, world.rank() + 4})) * (world.rank() + 0.1)).sum().backward();
      auto expected = torch::zeros({10, 3});
      expected[1] = 0.6;   // the mean of 0.1 and 1.1
      expected[4] = 0.05;  // only rank 0 has a gradient
      expected[5] = 0.55;
      EXPECT_TRUE(torch::allclose(words->weight.grad().to_dense(), expected, 1e-6, 1e-7)) << words->weight.grad();
    });
  }
}

TEST(PowerSgd, AllColumnsAreTheWholeMatrix) {
  run_ranks(2, [](World& world) {
    Net plain, compressed;
    const auto hook = power_sgd_hook(world, {.matrix_rank = 8, .start_step = 2, .min_compression_rate = 0.1});
    DistributedDataParallel plain_net(plain, world);
    DistributedDataParallel compressed_net(compressed, world, {.communication_hook = hook});
    for (int64_t i = 0; i < 6; ++i) {
      for (auto* net : {&plain_net, &compressed_net}) {
        net->model().zero_grad();
        (*net)(batch(world.rank(), i)).backward();
        descend(net->model());
      }
    }
    expect_equal(compressed, plain, 1e-4);
  });
}

TEST(PowerSgd, RefusesWhatCannotWork) {
  auto world = alone();
  EXPECT_THROW(power_sgd_hook(world, {.start_step = 1}), Error);
  EXPECT_NO_THROW(power_sgd_hook(world, {.start_step = 0, .error_feedback = false, .warm_start = false}));
  EXPECT_THROW(power_sgd_hook(world, {.matrix_rank = 0}), Error);
}

// Oracle: one process that adds the gradients of the ranks which still have data, and divides by the number of all
// ranks.
TEST(DdpJoin, RanksWithoutDataCountAsZeroes) {
  const std::vector<int64_t> num_batches = {2, 0, 5};
  Net whole;
  for (int64_t i = 0; i < 5; ++i) {
    whole.zero_grad();
    for (int64_t rank = 0; rank < 3; ++rank) {
      if (i < num_batches[static_cast<size_t>(rank)]) (whole.forward(batch(rank, i)) / 3).backward();
    }
    descend(whole);
  }
  const auto join_with = [&](const std::function<DistributedDataParallelOptions(World&)>& options) {
    run_ranks(3, [&](World& world) {
      Net model;
      DistributedDataParallel net(model, world, options(world));
      auto join = net.join();
      for (int64_t i = 0; i < num_batches[static_cast<size_t>(world.rank())]; ++i) {
        model.zero_grad();
        net(batch(world.rank(), i)).backward();
        descend(model);
      }
      join.finish();
      expect_equal(model, whole, 1e-5);
    });
  };
  join_with([](World&) { return DistributedDataParallelOptions{.bucket_bytes = 64, .first_bucket_bytes = 64}; });
  join_with([](World&) {
    return DistributedDataParallelOptions{.bucket_bytes = 64, .first_bucket_bytes = 64, .static_graph = true};
  });
  join_with([](World&) {
    return DistributedDataParallelOptions{.bucket_bytes = 64, .first_bucket_bytes = 64, .find_unused_parameters = true};
  });
  join_with([](World& world) {
    const auto exact = power_sgd_hook(world, {.matrix_rank = 8, .start_step = 2, .min_compression_rate = 0.1});
    return DistributedDataParallelOptions{.communication_hook = exact};
  });
}

TEST(DdpJoin, CanBeFollowedByAnother) {
  run_ranks(2, [](World& world) {
    Net model;
    DistributedDataParallel net(model, world);
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      auto join = net.join({.divide_by_all_ranks = false});
      for (int64_t i = 0; i < 2 + world.rank(); ++i) net(batch(0, i)).backward();
      join.finish();
      EXPECT_THROW(join.finish(), Error);
    }
    model.zero_grad();
    net(batch(0, 0)).backward();  // all ranks have data again, so the sum is divided by two
    Net one;
    one.forward(batch(0, 0)).backward();
    EXPECT_TRUE(torch::allclose(model.first->weight.grad(), one.first->weight.grad()));
  });
}

TEST(DdpJoin, CanStopAllRanksWhenOneIsOut) {
  const auto messages = failures(3, [](World& world) {
    Net model;
    DistributedDataParallel net(model, world);
    auto join = net.join({.throw_when_one_is_out = true});
    for (int64_t i = 0; i < (world.rank() == 2 ? 2 : 5); ++i) net(batch(0, i)).backward();
    join.finish();
  });
  for (const auto& message : messages) EXPECT_THAT(message, HasSubstr("rank 2 is out of data before step 3"));
}

TEST(DdpJoin, RefusesWhatCannotWork) {
  auto world = alone();
  SyncBatchNorm norm(3);
  norm->synchronize(world);
  EXPECT_THROW(DistributedDataParallel(norm, world).join(), Error);
  Net model;
  DistributedDataParallel hooked(model, world, {.communication_hook = fp16_hook(world)});
  EXPECT_THROW(hooked.join({.divide_by_all_ranks = false}), Error);
}

TEST(DdpJoin, ARankWithoutAnyDataCannotGuessASparseGradient) {
  const auto messages = failures(2, [](World& world) {
    nn::Embedding words(nn::EmbeddingOptions(10, 3).sparse(true));
    DistributedDataParallel net(words, world);
    auto join = net.join();
    for (int64_t i = 0; i < world.rank(); ++i) net(torch::tensor({1})).sum().backward();
    join.finish();
  });
  for (const auto& message : messages) EXPECT_THAT(message, HasSubstr("rank 0: in step 1"));
}

// If the options differed, ranks would average buckets of different sizes, or wait for collectives that never come.
TEST(DdpOptions, OptionsThatDifferAreNamed) {
  for (const auto& other : {DistributedDataParallelOptions{.bucket_bytes = 64},
                            DistributedDataParallelOptions{.find_unused_parameters = true}}) {
    run_ranks(2, [&](World& world) {
      Net model;
      try {
        DistributedDataParallel(model, world, world.rank() == 1 ? other : DistributedDataParallelOptions());
        ADD_FAILURE() << "nothing was thrown";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("options differ between ranks: on rank 1 it has 'bucket_bytes: "));
      }
    });
  }
}

}  // namespace
}  // namespace yoke::train

// Gradients that are not averaged, so that ranks would silently diverge, are an error of DistributedDataParallel.
#include <c10/core/AutogradState.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include <functional>
#include <optional>
#include <thread>

#include "fakes/run_ranks.h"
#include "yoke/base/error.h"
#include "yoke/train/optim/ema.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/shard/sharded_optimizer.h"

namespace yoke::train {
namespace {

using dist::World;
using fakes::run_ranks;
using testing::HasSubstr;
namespace nn = torch::nn;

/// Returns the error message of `steps` on one rank.
std::string error_of(const std::function<void(nn::Linear& model, DistributedDataParallel<nn::Linear>& net)>& steps) {
  World world(RankEnv{}, {.device = c10::Device(c10::kCPU)});
  nn::Linear model(3, 1);
  std::string message;
  {
    DistributedDataParallel net(model, world);
    try {
      steps(model, net);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      message = error.what();
    }
  }
  world.shutdown();
  return message;
}

const at::Tensor kInput = torch::ones({2, 3});

TEST(DdpSilentDrift, AModelThatIsCalledByItselfIsRefused) {
  const auto message = error_of([](nn::Linear& model, auto&) { model(kInput).sum().backward(); });
  EXPECT_THAT(message, HasSubstr("has received a gradient that is not averaged"));
  EXPECT_THAT(message, HasSubstr("`net(x)`"));
  EXPECT_THAT(error_of([](nn::Linear& model, auto& net) {
                net(kInput).sum().backward();
                model(kInput).sum().backward();
              }),
              HasSubstr("not averaged"));
}

TEST(DdpSilentDrift, ASecondBackwardThroughOneForwardIsRefused) {
  EXPECT_THAT(error_of([](nn::Linear&, auto& net) {
                const auto output = net(kInput);
                output.sum().backward({}, /*keep_graph=*/true);
                output.square().sum().backward();
              }),
              HasSubstr("not averaged"));
}

TEST(DdpSilentDrift, TwoForwardsAndTwoBackwardsAreRefused) {
  EXPECT_THAT(error_of([](nn::Linear&, auto& net) {
                const auto first = net(kInput), second = net(kInput * 2);
                first.sum().backward();
                second.sum().backward();
              }),
              HasSubstr("not averaged"));
}

void accumulate_once(DistributedDataParallel<nn::Linear>& net) {
  const auto no_sync = net.no_sync();
  net(kInput).sum().backward();
}

// An optimizer's step after no_sync() alone, as at the end of an epoch that does not fill an accumulation.
TEST(DdpSilentDrift, AStepWithGradientsOfNoSyncAloneIsRefused) {
  for (const bool resets_first : {true, false}) {
    for (const bool evaluates : {true, false}) {
      const auto message = error_of([&](nn::Linear& model, auto& net) {
        Sgd optimizer(model);
        net(kInput).sum().backward();
        optimizer.step(0.1);
        optimizer.zero_grad();
        accumulate_once(net);
        optimizer.step(0.1);
        if (resets_first) optimizer.zero_grad();
        const c10::AutoGradMode mode(!evaluates);
        net(kInput);
      });
      EXPECT_THAT(message, HasSubstr("had gradients of no_sync() alone"));
      EXPECT_THAT(message, HasSubstr("communication_hook"));
    }
  }
}

TEST(DdpSilentDrift, AStepOfAnyOptimizerOfYokeOnAnyThreadCounts) {
  EXPECT_THAT(error_of([](nn::Linear& model, auto& net) {
                Sgd optimizer(model);
                accumulate_once(net);
                std::thread([&] { optimizer.step(0.1); }).join();
                net(kInput);
              }),
              HasSubstr("had gradients of no_sync() alone"));
  EXPECT_THAT(error_of([](nn::Linear& model, auto& net) {
                ShardedOptimizer optimizer(model, net.group(), [](NamedTensors slices) { return Sgd(slices); });
                accumulate_once(net);
                optimizer.step(0.1);
                optimizer.zero_grad();
                net(kInput);
              }),
              HasSubstr("had gradients of no_sync() alone"));
}

// A WGAN: the generator's step leaves gradients in the critic, whose weights are clamped and whose gradients are reset.
TEST(DdpSilentDrift, AStepOfAnotherNetworkIsNotRefused) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(error_of([](nn::Linear& critic, auto& net) {
              nn::Linear generator(2, 3);
              DistributedDataParallel generator_net(generator, net.group());
              Sgd of_critic(critic), of_generator(generator);
              for (int i = 0; i < 3; ++i) {
                of_critic.zero_grad();
                net(kInput).sum().backward();
                of_critic.step(0.1);
                of_generator.zero_grad();
                {
                  const auto no_sync = net.no_sync();
                  net(generator_net(torch::ones({2, 2}))).sum().backward();
                }
                of_generator.step(0.1);
                const torch::NoGradGuard no_grad;
                for (auto& parameter : critic->parameters()) parameter.clamp_(-0.01, 0.01);
              }
            }),
            "");
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("no_sync() alone"), std::string::npos);
}

TEST(DdpSilentDrift, AStepOfAnotherOptimizerWithThemIsWarnedOfOnce) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(error_of([](nn::Linear& model, auto& net) {
              torch::optim::Adam optimizer(model->parameters());
              for (int i = 0; i < 3; ++i) {
                accumulate_once(net);
                optimizer.step();
                optimizer.zero_grad();
              }
            }),
            "");
  const auto warnings = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warnings, HasSubstr("had gradients of no_sync() alone"));
  EXPECT_EQ(warnings.find("warning"), warnings.rfind("warning"));
}

TEST(DdpSilentDrift, TheLastStepOfATrainingIsWarnedOf) {
  testing::internal::CaptureStderr();
  error_of([](nn::Linear& model, auto& net) {
    Sgd optimizer(model);
    accumulate_once(net);
    optimizer.step(0.1);
  });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("had gradients of no_sync() alone"));
}

TEST(DdpSilentDrift, GradientsOfNoSyncMayBeAveragedOrDropped) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(error_of([](nn::Linear& model, auto& net) {
              Sgd optimizer(model);
              ExponentialMovingAverage average(model, {.decay = 0.9});
              for (int i = 0; i < 3; ++i) {
                accumulate_once(net);
                if (i != 1) {
                  {
                    const auto swapped = average.swap_in();
                    const torch::NoGradGuard no_grad;
                    net(kInput);
                  }
                  accumulate_once(net);
                  net(kInput).sum().backward();
                  optimizer.step(0.1);
                }
                optimizer.zero_grad();
              }
            }),
            "");
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("no_sync() alone"), std::string::npos);
}

// Local SGD: each rank trains apart, and the program averages the parameters now and then.
TEST(DdpSilentDrift, AHookThatAveragesNothingTrainsApart) {
  run_ranks(2, [](World& world) {
    nn::Linear model(3, 1);
    const auto own = [](const GradientBucket& bucket) { return [mine = bucket.flat()] { return mine; }; };
    DistributedDataParallel net(model, world, {.communication_hook = own});
    Sgd optimizer(model);
    for (int i = 0; i < 3; ++i) {
      net(kInput * (world.rank() + 1.0)).sum().backward();
      EXPECT_TRUE(torch::equal(model->weight.grad(), torch::full({1, 3}, 2.0 * (world.rank() + 1.0))));
      optimizer.step(0.1);
      optimizer.zero_grad();
    }
  });
}

// The habit of build-nanogpt: the last micro-batch's forward is still under no_sync(), and its backward is not.
TEST(DdpSilentDrift, ABackwardWhoseForwardWasUnderNoSyncIsRefused) {
  const auto message = error_of([](nn::Linear& model, auto& net) {
    model->zero_grad();
    std::optional no_sync(net.no_sync());
    net(kInput).sum().backward();
    const auto loss = net(kInput).sum();
    no_sync.reset();
    loss.backward();
  });
  EXPECT_THAT(message, HasSubstr("has received a gradient that is not averaged"));
  EXPECT_THAT(message, HasSubstr("end no_sync() before the forward of the last micro-batch"));
}

TEST(DdpSilentDrift, AModelThatIsCalledByItselfAfterNoSyncIsRefused) {
  EXPECT_THAT(error_of([](nn::Linear& model, auto& net) {
                {
                  const auto no_sync = net.no_sync();
                  net(kInput).sum().backward();
                }
                model(kInput).sum().backward();
              }),
              HasSubstr("not averaged"));
}

// The backward under no_sync() takes the average that the forward before it has prepared.
TEST(DdpSilentDrift, ABackwardWhoseAverageAnotherHasTakenIsRefused) {
  for (const bool through_net : {true, false}) {
    EXPECT_THAT(error_of([through_net](nn::Linear& model, auto& net) {
                  const auto first = net(kInput).sum();
                  {
                    const auto no_sync = net.no_sync();
                    (through_net ? net(kInput * 2) : model(kInput * 2)).sum().backward();
                  }
                  first.backward();
                }),
                HasSubstr("has taken the average of this one"));
  }
}

// Like Python, a forward before no_sync() and its backward inside it are averaged.
TEST(DdpSilentDrift, ABackwardUnderNoSyncOfAForwardBeforeItIsAveraged) {
  run_ranks(2, [](World& world) {
    nn::Linear model(3, 1);
    DistributedDataParallel net(model, world);
    const auto loss = net(kInput * (world.rank() + 1)).sum();
    {
      const auto no_sync = net.no_sync();
      loss.backward();
    }
    EXPECT_TRUE(torch::allclose(model->weight.grad(), torch::full({1, 3}, 3.0)));
  });
}

TEST(DistributedDataParallel, AModelThatIsConvertedAfterwardsIsNamed) {
  const auto message = error_of([](nn::Linear& model, auto& net) {
    net(kInput).sum().backward();
    model->to(at::kBFloat16);
    net(kInput.to(at::kBFloat16)).sum().backward();
  });
  EXPECT_THAT(message, HasSubstr("'weight' is BFloat16 on cpu, and was Float on cpu when this was made"));
  EXPECT_THAT(message, HasSubstr("model->to(at::kBFloat16), before its DistributedDataParallel is made"));
}

TEST(DdpSilentDrift, WhatIsRightIsNotRefused) {
  EXPECT_EQ(error_of([](nn::Linear& model, auto& net) {
              net(kInput);                                             // a forward without a backward
              (net(kInput).sum() + net(kInput * 2).sum()).backward();  // two forwards, one backward
              const auto x = kInput.clone().set_requires_grad(true);   // a gradient penalty, which is not a step
              const auto output = net(x).sum();
              const auto slope = torch::autograd::grad({output}, {x}, {}, true, true)[0];
              (output + slope.square().sum()).backward();
              {
                const auto no_sync = net.no_sync();
                net(kInput).sum().backward();
                model(kInput).sum().backward();
              }
              net(kInput).sum().backward();
              for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
              net(x).sum().backward();  // frozen at present, like the discriminator of a GAN
              for (auto& parameter : model->parameters()) parameter.set_requires_grad(true);
              net(x).sum().backward();
              const torch::NoGradGuard no_grad;
              net(kInput);
            }),
            "");
}

}  // namespace
}  // namespace yoke::train

// Tests properties of ShardedOptimizer. sharded_training_test.cpp compares it with other ways to train.
#include "yoke/train/shard/sharded_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>

#include "fakes/run_ranks.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/sgd.h"

namespace yoke::train {
namespace {

using dist::World;
using fakes::run_ranks;
using testing::HasSubstr;

std::string what_is_thrown_by(const auto& body) { return test::error_of(body).what(); }

std::unique_ptr<Optimizer> make_plain_sgd(NamedTensors parameters) {
  return std::make_unique<Sgd>(std::move(parameters), SgdOptions{.lr = 1});
}

TEST(ShardedOptimizer, OptionsThatDifferAreNamedOnEveryRank) {
  for (const auto& other :
       {ShardedOptimizerOptions{.bucket_bytes = 4}, ShardedOptimizerOptions{.gradients = GradientMean::kInStep}}) {
    std::atomic<int> count = 0;
    run_ranks(2, [&](World& world) {
      const auto p = torch::ones({64}).set_requires_grad(true), q = torch::ones({64}).set_requires_grad(true);
      EXPECT_THAT(what_is_thrown_by([&] {
                    ShardedOptimizer({{"p", p}, {"q", q}}, world, make_plain_sgd,
                                     world.rank() == 1 ? other : ShardedOptimizerOptions());
                  }),
                  HasSubstr("options differ between ranks: on rank 1 it has 'gradients: "));
      ++count;
    });
    EXPECT_EQ(count, 2);
  }
}

TEST(ShardedOptimizer, InStepLeavesAloneWhatNoRankUsed) {
  for (const int64_t bucket_bytes : {4, 1 << 20}) {
    run_ranks(2, [&](World& world) {
      const auto make = [] { return torch::ones({40}).set_requires_grad(true); };
      const auto used = make(), by_one = make(), unused = make();
      ShardedOptimizer optimizer({{"used", used}, {"by_one", by_one}, {"unused", unused}}, world,
                                 [](NamedTensors slices) {
                                   return std::make_unique<AdamW>(std::move(slices),
                                                                  AdamWOptions{.lr = 0.1, .weight_decay = 0.1});
                                 },
                                 {.gradients = GradientMean::kInStep, .bucket_bytes = bucket_bytes});
      for (int i = 0; i < 3; ++i) {
        optimizer.zero_grad();
        (world.rank() == 0 ? used.sum() + by_one.sum() : used.sum()).backward();
        optimizer.clip_grad_norm(100);
        optimizer.step();
      }
      EXPECT_TRUE(torch::equal(unused, torch::ones({40})));
      EXPECT_NEAR(used[0].item<double>(), 0.67, 0.03);
      EXPECT_NEAR(by_one[39].item<double>(), 0.67, 0.03);
    });
  }
}

// The expression that makes an optimizer with groups is the same as without sharding.
TEST(ShardedOptimizer, TheFunctionMayReturnAnOptimizerWithGroups) {
  run_ranks(2, [](World& world) {
    const auto p = torch::ones({64}).set_requires_grad(true), q = torch::ones({8, 8}).set_requires_grad(true);
    ShardedOptimizer optimizer({{"p", p}, {"q", q}}, world, [](NamedTensors slices) {
      const auto [weights, others] = split(slices, [](auto&, auto shape) { return shape.size() > 1; });
      return Sgd({{weights, {.lr = 0.5}}, {others, {.lr = 1}}});
    });
    (p.sum() + q.sum()).backward();
    optimizer.step();
    EXPECT_TRUE(torch::equal(p, torch::zeros({64})));
    EXPECT_TRUE(torch::equal(q, torch::full({8, 8}, 0.5)));
  });
}

// clip_grad_norm averages the gradients. If gradients change after it, step must average them again.
TEST(ShardedOptimizer, GradientsThatChangeAfterClippingCount) {
  run_ranks(2, [](World& world) {
    const auto p = torch::zeros({64}).set_requires_grad(true);
    ShardedOptimizer optimizer({{"p", p}}, world, make_plain_sgd, {.gradients = GradientMean::kInStep});
    p.sum().backward();
    optimizer.clip_grad_norm(0.1);
    p.mutable_grad().reset();  // drops the clipped gradient, like the module's zero_grad
    p.sum().backward();
    optimizer.step();
    EXPECT_TRUE(torch::allclose(p, torch::full({64}, -1.0)));
    optimizer.zero_grad();
    p.sum().backward();
    optimizer.clip_grad_norm(1e9);
    if (world.rank() == 0) (2 * p.sum()).backward();  // one more micro-batch on one rank
    optimizer.step();
    EXPECT_TRUE(torch::allclose(p, torch::full({64}, -3.0)));
    optimizer.zero_grad();
    p.sum().backward();
    EXPECT_NEAR(optimizer.clip_grad_norm(0.8).item<double>(), 8, 1e-5);
    optimizer.step();
    EXPECT_TRUE(torch::allclose(p, torch::full({64}, -3.1))) << "and what did not change is clipped";
  });
}

TEST(ShardedOptimizer, ClipsDoublesAndNormsWithoutASquareInFloat) {
  run_ranks(2, [](World& world) {
    for (const auto dtype : {at::kDouble, at::kFloat}) {
      const auto p = torch::zeros({64}, dtype).set_requires_grad(true);
      ShardedOptimizer optimizer({{"p", p}}, world, make_plain_sgd, {.gradients = GradientMean::kInStep});
      const double scale = dtype == at::kDouble ? 1 : 1e18;
      (p.sum() * scale).backward();
      EXPECT_NEAR(optimizer.clip_grad_norm(0.8).item<double>() / scale, 8, 1e-5);
      optimizer.step();
      EXPECT_TRUE(torch::allclose(p, torch::full({64}, -0.1, dtype)));
    }
  });
}

TEST(ShardedOptimizer, AnErrorInOneRanksStepIsNamedOnEveryRank) {
  for (const auto mean : {GradientMean::kDone, GradientMean::kInStep}) {
    std::array<std::string, 2> messages;
    const auto body = [&](World& world) {
      const auto e = torch::ones({4, 4}).set_requires_grad(true), d = torch::ones({64}).set_requires_grad(true);
      ShardedOptimizer optimizer({{"e", e}, {"d", d}}, world, make_plain_sgd, {.gradients = mean});
      if (world.rank() == 0) {
        e.mutable_grad() = torch::sparse_coo_tensor(torch::zeros({1, 1}, torch::kLong), torch::ones({1, 4}), {4, 4});
      }
      d.sum().backward();
      const auto message = what_is_thrown_by([&] { optimizer.step(); });
      messages[static_cast<size_t>(world.rank())] = message;
      throw Error(ErrorCode::kUnavailable, message);  // leaves without waiting for other ranks
    };
    EXPECT_THROW(run_ranks(2, body, std::chrono::seconds(3)), Error);
    for (const auto& message : messages) EXPECT_THAT(message, HasSubstr("parameter 'e' has a sparse gradient"));
  }
}

TEST(ShardedOptimizer, ATiedWeightIsSteppedOnceAndSavedUnderBothNames) {
  for (const auto mean : {GradientMean::kDone, GradientMean::kInStep}) {
    run_ranks(2, [&](World& world) {
      const auto weight = torch::ones({64}).set_requires_grad(true);
      ShardedOptimizer optimizer({{"encoder", weight}, {"decoder", weight}}, world, make_plain_sgd,
                                 {.gradients = mean});
      (weight.sum() + weight.sum()).backward();
      optimizer.step();
      EXPECT_TRUE(torch::allclose(weight, torch::full({64}, -1.0)));
    });
  }
}

TEST(ShardedOptimizer, RatesMayBeSetForEachGroup) {
  run_ranks(2, [&](World& world) {
    const auto a = torch::ones({64}).set_requires_grad(true), b = torch::ones({64}).set_requires_grad(true);
    ShardedOptimizer optimizer({{"a", a}, {"b", b}}, world, [](NamedTensors slices) {
      const auto [first, second] = split(slices, [](auto& name, auto) { return name == "a"; });
      return Sgd({{first, {.lr = 1}}, {second, {.lr = 1}}});
    });
    optimizer.set_lr(1, 0.25);
    EXPECT_EQ(optimizer.lr(1), 0.25);
    (a.sum() + b.sum()).backward();
    optimizer.step();
    EXPECT_TRUE(torch::equal(a, torch::zeros({64})));
    EXPECT_TRUE(torch::equal(b, torch::full({64}, 0.75)));
    optimizer.set_lr(0.5);
    EXPECT_EQ(optimizer.lr(0), 0.5);
  });
}

TEST(ShardedOptimizer, GroupsAreGivenAsToTheOptimizerItself) {
  run_ranks(2, [&](World& world) {
    const auto a = torch::ones({64}).set_requires_grad(true), b = torch::ones({7, 5}).set_requires_grad(true);
    const auto frozen = torch::ones({3});
    Sharded<Sgd> optimizer({{{{"a", a}}, {.lr = 1}}, {{{"frozen", frozen}, {"b", b}}, {.lr = 0.25}}}, world);
    EXPECT_EQ(optimizer.lr(0), 1);
    EXPECT_EQ(optimizer.lr(1), 0.25);
    (a.sum() + b.sum()).backward();
    optimizer.step();
    EXPECT_TRUE(torch::equal(a, torch::zeros({64})));
    EXPECT_TRUE(torch::equal(b, torch::full({7, 5}, 0.75)));
    EXPECT_THAT(what_is_thrown_by([&] {
                  Sharded<Sgd>({{{{"a", a}}, {}}, {{{"a", a}}, {}}}, world);
                }),
                HasSubstr("two parameters named 'a'"));

    const torch::nn::Linear sharded(3, 2), plain(3, 2);  // with the whole options, and the bits of AdamW itself
    const c10::AutoGradMode no_grad(false);
    const AdamWOptions options{.lr = 0.1, .weight_decay = 0.5};
    for (const auto& model : {sharded, plain}) {
      for (auto& parameter : model->parameters()) {
        parameter.fill_(0.5);
        parameter.mutable_grad() = torch::full_like(parameter, 2);
      }
    }
    Sharded<AdamW> with_state(sharded, world, options);
    with_state.step();
    AdamW whole(plain, options);
    whole.step();
    EXPECT_TRUE(torch::equal(sharded->weight, plain->weight) && torch::equal(sharded->bias, plain->bias));
    EXPECT_FALSE(torch::equal(plain->weight, torch::full({2, 3}, 0.5)));
  });
}

TEST(ShardedOptimizer, ARankThatTrainsNothingIsNamedOnEveryRank) {
  std::atomic<int> count = 0;
  run_ranks(2, [&](World& world) {
    const auto p = torch::ones({64}).set_requires_grad(world.rank() == 0);
    EXPECT_THAT(what_is_thrown_by([&] {
                  ShardedOptimizer({{"p", p}}, world, make_plain_sgd);
                }),
                HasSubstr("differ between ranks: on rank 1"));
    ++count;
  });
  EXPECT_EQ(count, 2);
}

// torch::load and module.to() replace a parameter's memory. The module then uses the new memory, but steps would update
// the old memory.
TEST(ShardedOptimizer, AParameterWithOtherMemoryIsNamedOnEveryRank) {
  std::array<std::string, 2> messages;
  const auto body = [&](World& world) {
    const auto p = torch::ones({64}).set_requires_grad(true);
    ShardedOptimizer optimizer({{"p", p}}, world, make_plain_sgd, {.gradients = GradientMean::kInStep});
    if (world.rank() == 1) p.set_data(torch::zeros({64}));
    p.sum().backward();
    const auto message = what_is_thrown_by([&] { optimizer.step(); });
    messages[static_cast<size_t>(world.rank())] = message;
    throw Error(ErrorCode::kUnavailable, message);  // leaves without waiting for other ranks
  };
  EXPECT_THROW(run_ranks(2, body, std::chrono::seconds(3)), Error);
  for (const auto& message : messages) EXPECT_THAT(message, HasSubstr("parameter 'p' has other memory"));
}

}  // namespace
}  // namespace yoke::train

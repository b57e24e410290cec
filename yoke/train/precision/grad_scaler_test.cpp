#include "yoke/train/precision/grad_scaler.h"

#include <ATen/Version.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "fakes/run_ranks.h"
#include "tests/support/message_of.h"
#include "tests/support/paths.h"
#include "yoke/base/error.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/sgd.h"

namespace yoke::train {
namespace {

using ::testing::HasSubstr;
constexpr float kInf = std::numeric_limits<float>::infinity();

float float_of(const std::string& bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(std::stoul(bits, nullptr, 16)));
}

/// One of the recorded optimizers, from yoke or from torch.
struct Recorded {
  at::Tensor parameter;
  std::unique_ptr<Optimizer> ours;
  std::unique_ptr<torch::optim::Optimizer> torchs;

  void unscale(GradScaler& scaler) { ours ? scaler.unscale(*ours) : scaler.unscale(*torchs); }
  void step(GradScaler& scaler) { ours ? scaler.step(*ours) : scaler.step(*torchs); }
};

Recorded make(const std::string& kind, int64_t size, int64_t k) {
  Recorded made{.parameter = at::empty({size})};
  for (int64_t i = 0; i < size; ++i) {
    made.parameter.data_ptr<float>()[i] = static_cast<float>(std::sin(static_cast<double>(i + k)));
  }
  made.parameter.requires_grad_();
  const NamedTensors named{{"weight", made.parameter}};
  if (kind == "sgd_fused") made.ours = std::make_unique<Sgd>(named, SgdOptions{.lr = 0.01, .momentum = 0.9});
  if (kind == "adamw_fused") made.ours = std::make_unique<AdamW>(named, AdamWOptions{.lr = 0.01, .weight_decay = 0.05});
  if (kind == "sgd_plain") {
    made.torchs =
        std::make_unique<torch::optim::SGD>(std::vector<at::Tensor>{made.parameter}, torch::optim::SGDOptions(0.01));
  }
  return made;
}

at::Tensor factors(const nlohmann::json& recorded, int64_t t, int64_t k) {
  const int64_t size = recorded["size"];
  const auto tensor = at::empty({size});
  auto* values = tensor.data_ptr<float>();
  for (int64_t i = 0; i < size; ++i) values[i] = static_cast<float>(4 * std::cos(static_cast<double>(i * t + k + 1)));
  for (const int64_t step : recorded["inf"]) {
    if (k == 0 && t == step) values[2] = kInf;
  }
  for (const int64_t step : recorded["nan"]) {
    if (k == 0 && t == step) values[2] = std::numeric_limits<float>::quiet_NaN();
  }
  return tensor;
}

// Oracle: Python's torch.amp.GradScaler (tests/reference/record_grad_scaler.py), in each of 200 steps. The bits of
// parameters are compared if the CPU has the vector instructions of the recording machine.
TEST(GradScaler, EqualsPyTorchsThrough200Steps) {
  const auto recorded = nlohmann::json::parse(std::ifstream(test::reference("grad_scaler.json")));
  const bool same_bits = at::get_cpu_capability() == recorded["cpu_capability"].get<std::string>();
  const int64_t size = recorded["size"];
  ASSERT_GE(recorded["cases"].size(), 7u);
  for (const auto& entry : recorded["cases"]) {
    SCOPED_TRACE(entry["name"].get<std::string>());
    const auto& options = entry["scaler"];
    GradScaler scaler({.init_scale = options.value("init_scale", 65536.0),
                       .growth_factor = options.value("growth_factor", 2.0),
                       .backoff_factor = options.value("backoff_factor", 0.5),
                       .growth_interval = options.value("growth_interval", int64_t{2000})});
    std::vector<Recorded> optimizers;
    for (const std::string kind : entry["optimizers"]) {
      optimizers.push_back(make(kind, size, static_cast<int64_t>(optimizers.size())));
    }
    for (int64_t t = 0; t < recorded["steps"]; ++t) {
      const auto now = static_cast<size_t>(t);
      for (size_t k = 0; k < optimizers.size(); ++k) {
        auto& one = optimizers[k];
        one.parameter.mutable_grad() = at::Tensor();
        scaler.scale((one.parameter * factors(recorded, t, static_cast<int64_t>(k))).sum()).backward();
        if (entry.value("unscale", false)) one.unscale(scaler);
        one.step(scaler);
      }
      scaler.update();
      ASSERT_EQ(static_cast<float>(scaler.scale_now()), float_of(entry["scales"][now])) << "step " << t;
      ASSERT_EQ(scaler.growth_tracker(), entry["trackers"][now].get<int64_t>()) << "step " << t;
      const std::string expected = entry["parameters"][now];
      for (size_t i = 0; i < optimizers.size() * static_cast<size_t>(size); ++i) {
        const auto& parameter = optimizers[i / static_cast<size_t>(size)].parameter;
        const float got = parameter.const_data_ptr<float>()[i % static_cast<size_t>(size)];
        ASSERT_NEAR(got, float_of(expected.substr(8 * i, 8)), same_bits ? 0 : 1e-4) << "step " << t << " element " << i;
      }
    }
  }
}

struct GradScalerInUse : ::testing::Test {
  void backward(double factor = 1) {
    weight.mutable_grad() = at::Tensor();
    scaler.scale((weight * factor).sum()).backward();
  }
  at::Tensor weight = at::ones({3}).requires_grad_();
  Sgd optimizer{{{"weight", weight}}, {.lr = 0.5}};
  torch::optim::SGD torchs{{weight}, torch::optim::SGDOptions(0.5)};
  GradScaler scaler{{.init_scale = 8, .growth_interval = 2}};
};

TEST_F(GradScalerInUse, SkipsTheStepAndKeepsTheOptimizersState) {
  AdamW adam({{"weight", weight}});
  backward();
  scaler.step(adam);
  scaler.update();
  const auto before = weight.clone(), steps = adam.state_dict().at("step.weight").clone();
  backward(kInf);
  scaler.step(adam);
  scaler.update();
  EXPECT_TRUE(at::equal(weight, before));
  EXPECT_TRUE(at::equal(adam.state_dict().at("step.weight"), steps));
  EXPECT_EQ(scaler.scale_now(), 4);
}

// As optimizer.step(lr): a schedule needs no second call. Oracle: the same with set_lr.
TEST_F(GradScalerInUse, StepsWithARate) {
  const auto other = at::ones({3}).requires_grad_();
  Sgd by_hand({{"other", other}}, {.lr = 0.5});
  for (const double lr : {0.25, 0.125}) {
    backward();
    scaler.step(optimizer, lr);
    scaler.update();
    other.mutable_grad() = at::ones({3});
    by_hand.step(lr);
  }
  EXPECT_TRUE(at::equal(weight, other));
  EXPECT_EQ(optimizer.lr(), 0.125);
}

TEST_F(GradScalerInUse, RefusesAWrongOrder) {
  EXPECT_THAT(test::error_of([&] { scaler.unscale(optimizer); }).what(),
              HasSubstr("unscale() before anything was scaled"));
  EXPECT_THAT(test::error_of([&] { scaler.step(optimizer); }).what(), HasSubstr("step() before anything was scaled"));
  EXPECT_THAT(test::error_of([&] { scaler.update(); }).what(), HasSubstr("update() before anything was scaled"));
  backward();
  EXPECT_THAT(test::error_of([&] { scaler.update(); }).what(), HasSubstr("before any gradient was checked"));
  scaler.unscale(optimizer);
  EXPECT_THAT(test::error_of([&] { scaler.unscale(optimizer); }).what(), HasSubstr("unscale() twice"));
  scaler.step(optimizer);
  EXPECT_THAT(test::error_of([&] { scaler.step(optimizer); }).what(), HasSubstr("step() twice"));
  EXPECT_THAT(test::error_of([&] { scaler.unscale(optimizer); }).what(), HasSubstr("unscale() after step()"));
  scaler.step(torchs);  // a different optimizer
  EXPECT_THAT(test::error_of([&] { scaler.step(torchs); }).what(), HasSubstr("step() twice"));
  scaler.update();
  backward();
  scaler.step(optimizer);
  scaler.update();
  EXPECT_TRUE(at::equal(weight, at::full({3}, -0.0625)));  // 1 - 0.5 - 0.5 / 8 (unscaled twice) - 0.5

  weight.mutable_grad() = at::Tensor();
  EXPECT_THAT(test::error_of([&] { scaler.step(torchs); }).what(),
              HasSubstr("none of whose parameters has a gradient"));
}

TEST_F(GradScalerInUse, RefusesFactorsOutsideTheirRanges) {
  EXPECT_THROW(GradScaler({.growth_factor = 1}), Error);
  EXPECT_THROW(GradScaler({.backoff_factor = 1}), Error);
}

TEST_F(GradScalerInUse, UnscalesGradientsInPlace) {
  backward(3);
  EXPECT_TRUE(at::equal(weight.grad(), at::full({3}, 24)));
  scaler.unscale(optimizer);
  EXPECT_TRUE(at::equal(weight.grad(), at::full({3}, 3)));
  scaler.step(optimizer);
  EXPECT_TRUE(at::equal(weight, at::full({3}, -0.5)));
}

TEST_F(GradScalerInUse, UnscalesATiedParameterOnce) {
  Sgd tied({{"embedding", weight}, {"head", weight}}, {.lr = 1});
  torch::optim::SGD torchs_tied({weight, weight}, torch::optim::SGDOptions(1));
  backward(3);
  scaler.unscale(tied);
  EXPECT_TRUE(at::equal(weight.grad(), at::full({3}, 3)));
  backward(3);
  scaler.unscale(torchs_tied);
  EXPECT_TRUE(at::equal(weight.grad(), at::full({3}, 3)));
}

// Without gradients, fused optimizers step and others throw, as in Python. In both cases update() finds no checked
// gradient.
TEST_F(GradScalerInUse, WithoutAnyGradientDoesAsPyTorch) {
  scaler.scale(weight.sum());
  scaler.step(optimizer);
  EXPECT_TRUE(at::equal(weight, at::ones({3})));
  EXPECT_THAT(test::error_of([&] { scaler.unscale(optimizer); }).what(), HasSubstr("unscale() after step()"));
  EXPECT_THAT(test::error_of([&] { scaler.step(torchs); }).what(),
              HasSubstr("none of whose parameters has a gradient"));
  EXPECT_THAT(test::error_of([&] { scaler.update(); }).what(), HasSubstr("before any gradient was checked"));
}

TEST_F(GradScalerInUse, PassesThroughWhenDisabled) {
  GradScaler off({.enabled = false});
  const auto loss = (weight * 2).sum();
  EXPECT_TRUE(off.scale(loss).is_same(loss));
  loss.backward();
  off.unscale(optimizer);
  off.step(optimizer);
  off.step(torchs);
  off.update();
  EXPECT_TRUE(at::equal(weight, at::full({3}, -1)));
  EXPECT_EQ(off.scale_now(), 1);
  EXPECT_TRUE(off.state_dict().empty());
  off.load_state_dict({});
}

TEST_F(GradScalerInUse, TakesAScaleOfTheUsers) {
  backward();
  scaler.update(1024);
  EXPECT_EQ(scaler.scale_now(), 1024);
}

TEST_F(GradScalerInUse, ContinuesFromItsState) {
  const auto run = [&](GradScaler& one, int steps) {
    for (int i = 0; i < steps; ++i) {
      weight.mutable_grad() = at::Tensor();
      one.scale(weight.sum()).backward();
      one.step(optimizer);
      one.update();
    }
  };
  run(scaler, 3);
  const auto state = scaler.state_dict();
  EXPECT_EQ(state.size(), 5u);
  EXPECT_EQ(state.at("scale").item<double>(), 16);
  EXPECT_EQ(state.at("_growth_tracker").item<int64_t>(), 1);
  GradScaler fresh, running;
  fresh.load_state_dict(state);
  run(running, 1);
  running.load_state_dict(state);
  for (auto* one : {&scaler, &fresh, &running}) {
    run(*one, 2);
    EXPECT_EQ(one->scale_now(), 32);
    EXPECT_EQ(one->growth_tracker(), 1);
  }
  auto broken = state;
  broken.erase("growth_interval");
  EXPECT_THAT(test::error_of([&] { fresh.load_state_dict(broken); }).what(), HasSubstr("'growth_interval' is not in"));
  EXPECT_THAT(test::error_of([&] { fresh.load_state_dict({}); }).what(), HasSubstr("not enabled"));
}

TEST(GradScaler, RefusesToUnscaleHalfGradients) {
  const auto weight = at::ones({2}, at::kHalf).requires_grad_();
  Sgd optimizer({{"encoder.weight", weight}}, {.lr = 1});
  GradScaler scaler;
  scaler.scale(at::ones({}));
  weight.mutable_grad() = at::ones({2}, at::kHalf);
  EXPECT_THAT(test::error_of([&] { scaler.unscale(optimizer); }).what(), HasSubstr("encoder.weight is float16"));
}

TEST(GradScaler, LooksAtSparseGradientsOnceTheyAreSummed) {
  const auto weight = at::ones({4, 1}).requires_grad_();
  Sgd optimizer({{"weight", weight}}, {.lr = 1});
  GradScaler scaler({.init_scale = 4});
  const auto step = [&](float value) {
    scaler.scale(at::ones({}));
    weight.mutable_grad() = at::sparse_coo_tensor(at::full({1, 1}, 2, at::kLong), at::full({1, 1}, value), {4, 1});
    scaler.step(optimizer);
    scaler.update();
    return weight[2].item<float>();
  };
  EXPECT_EQ(step(kInf), 1);
  EXPECT_EQ(scaler.scale_now(), 2);
  EXPECT_EQ(step(2), 0);
}

// One rank of three overflows, as can happen with sharded gradients. Then no rank steps, and all scales stay equal.
TEST(GradScaler, AgreesBetweenRanks) {
  fakes::run_ranks(3, [](dist::World& world) {
    const auto weight = at::ones({2}).requires_grad_();
    Sgd optimizer({{"weight", weight}}, {.lr = 1});
    GradScaler scaler({.init_scale = 16, .group = &world});
    for (int i = 0; i < 4; ++i) {
      weight.mutable_grad() = at::Tensor();
      const bool overflows = i == 1 && world.rank() == 2, has_gradient = i != 3 || world.rank() == 0;
      const auto scaled = scaler.scale((weight * (overflows ? kInf : 1)).sum());
      if (has_gradient) scaled.backward();
      if (i == 2) scaler.unscale(optimizer);
      scaler.step(optimizer);
      scaler.update();
    }
    EXPECT_EQ(scaler.scale_now(), 8) << world.rank();
    EXPECT_TRUE(at::equal(weight, at::full({2}, world.rank() == 0 ? -2 : -1))) << world.rank();
  });
}

}  // namespace
}  // namespace yoke::train

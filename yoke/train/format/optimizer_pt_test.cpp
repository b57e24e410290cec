#include "yoke/train/format/optimizer_pt.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>

#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "yoke/base/error.h"
#include "yoke/train/format/pt_file.h"
#include "yoke/train/optim/adagrad.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/nadam.h"
#include "yoke/train/optim/rmsprop.h"
#include "yoke/train/optim/sgd.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

NamedTensors parameters_of(const TensorMap& tensors) {
  NamedTensors parameters;
  for (const auto& [name, tensor] : tensors) parameters.emplace_back(name, tensor.clone().set_requires_grad(true));
  return parameters;
}

TensorMap values_of(const NamedTensors& parameters) {
  TensorMap values;
  for (const auto& [name, tensor] : parameters) values.emplace(name, tensor.detach().clone());
  return values;
}

TensorMap small_model() {
  return {{"bias", at::arange(3, at::kFloat).sin()}, {"weight", at::arange(12, at::kFloat).cos().reshape({3, 4})}};
}

void take_steps(Optimizer& optimizer, const TensorMap& gradients, int num_steps) {
  for (int i = 0; i < num_steps; ++i) {
    for (const auto& [name, parameter] : optimizer.parameters()) {
      parameter.mutable_grad() = gradients.at(name).clone();
    }
    optimizer.step();
  }
}

void expect_equal(const TensorMap& ours, const TensorMap& theirs, const std::string& what) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  for (const auto& [name, tensor] : ours) {
    ASSERT_TRUE(theirs.contains(name)) << what << ": " << name;
    EXPECT_TRUE(at::equal(tensor, theirs.at(name))) << what << ": " << name;
  }
}

class OptimizerPt : public testing::Test {
 protected:
  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(OptimizerPt, TakesOverWhatPythonSaved) {
  const auto file = read_pt(fs::path(test::reference("pt/trainer.pt")));
  const auto* saved = file.get_if<PtDict>()->find("optimizer");
  const auto model = read_state_dict(fs::path(test::reference("pt/trainer.pt")), {"state_dict"});
  NamedTensors parameters;  // in Python's order
  for (const auto* name : {"conv.weight", "conv.bias", "norm.weight", "norm.bias", "head.weight", "head.bias"}) {
    parameters.emplace_back(name, model.at(name).clone().set_requires_grad(true));
  }
  AdamW optimizer(parameters, {.lr = 0.5});
  load_pt(optimizer, *saved);
  EXPECT_EQ(optimizer.lr(), 1e-3);
  const auto state = optimizer.state_dict();
  EXPECT_EQ(state.size(), 6u + 1);  // only the head had gradients; and "lr"
  const auto& recorded = *saved->get_if<PtDict>()->find("state")->get_if<PtDict>();
  ASSERT_EQ(recorded.items.size(), 2u);
  const auto& of_weight = *recorded.items[0].value.get_if<PtDict>();
  EXPECT_TRUE(at::equal(state.at("exp_avg.head.weight"), *of_weight.find("exp_avg")->get_if<at::Tensor>()));
  EXPECT_TRUE(at::equal(state.at("exp_avg_sq.head.weight"), *of_weight.find("exp_avg_sq")->get_if<at::Tensor>()));
  EXPECT_EQ(state.at("step.head.weight").item<float>(), 1);
}

TEST_F(OptimizerPt, SurvivesItsOwnFile) {
  const auto path = folder_ / "optimizer.pt";
  const auto gradients = small_model();
  AdamW first(parameters_of(small_model()), {.lr = 0.25, .beta1 = 0.5, .amsgrad = true});
  take_steps(first, gradients, 3);
  write_pt(path, to_pt(first));
  AdamW second(parameters_of(values_of(first.parameters())), {.amsgrad = true});
  load_pt(second, read_pt(path));
  EXPECT_EQ(second.options(0).beta1, 0.5);
  take_steps(first, gradients, 2);
  take_steps(second, gradients, 2);
  expect_equal(values_of(first.parameters()), values_of(second.parameters()), "parameters");
  expect_equal(first.state_dict(), second.state_dict(), "state");
}

TEST_F(OptimizerPt, SaysWhatIsNoStateDict) {
  AdamW optimizer(parameters_of(small_model()));
  const auto refusal = [&](const PtValue& value) -> std::string {
    try {
      load_pt(optimizer, value);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "taken";
  };
  EXPECT_THAT(refusal(PtValue(int64_t{3})), HasSubstr("it is a int"));
  EXPECT_THAT(refusal(PtDict()), HasSubstr("there is no 'state'"));
  auto dict = to_pt(optimizer);
  dict.items[1].value = PtList{{PtValue(PtDict{{{std::string("params"), PtList{{PtValue(1.5)}}}}})}};
  EXPECT_THAT(refusal(dict), HasSubstr("a parameter's number is a float"));
  dict = to_pt(optimizer);
  const PtDict complex_lr{{{std::string("params"), PtList()}, {std::string("lr"), at::ones({}, at::kComplexFloat)}}};
  dict.items[1].value = PtList{{PtValue(complex_lr)}};
  EXPECT_THAT(refusal(dict), HasSubstr("parameter"));
  dict = to_pt(optimizer);
  dict.items[0].value = PtDict{{{int64_t{0}, PtDict{{{std::string("exp_avg"), std::string("much")}}}}}};
  EXPECT_THAT(refusal(dict), HasSubstr("'exp_avg' of a parameter is a str"));
}

// Python's optimizers have the rates that a program puts into param_groups, and some programs ascend.
TEST_F(OptimizerPt, TakesOverANegativeRate) {
  AdamW optimizer(parameters_of(small_model()));
  auto dict = to_pt(optimizer);
  auto& groups = std::get<PtList>(dict.items[1].value);
  for (auto& item : std::get<PtDict>(groups.values[0]).items) {
    if (std::get<std::string>(item.key) == "lr") item.value = -0.25;
  }
  load_pt(optimizer, dict);
  EXPECT_EQ(optimizer.lr(), -0.25);
}

// Python's Adagrad requires a state for every parameter, otherwise its step fails.
TEST_F(OptimizerPt, AdagradsStateIsThereBeforeTheFirstGradient) {
  const auto unused = at::ones({3}).set_requires_grad(true);
  Adagrad optimizer({{"unused", unused}}, {.initial_accumulator_value = 0.5});
  const auto dict = to_pt(optimizer);
  const auto& states = *dict.find("state")->get_if<PtDict>();
  ASSERT_EQ(states.items.size(), 1u);
  const auto& state = *states.items[0].value.get_if<PtDict>();
  EXPECT_TRUE(at::equal(*state.find("sum")->get_if<at::Tensor>(), at::full({3}, 0.5)));
  EXPECT_EQ(state.find("step")->get_if<at::Tensor>()->item<float>(), 0);
  load_pt(optimizer, dict);
  unused.mutable_grad() = at::ones({3});
  optimizer.step();
  EXPECT_EQ(optimizer.state_dict().at("step.unused").item<float>(), 1);
}

// Compares with PyTorch: a training that is saved here and continued in Python gives the same results.
TEST_F(OptimizerPt, GoesOnInPythonAndEqualsPyTorchsToTheLastBit) {
  const char* torchrun = std::getenv("YOKE_PEER_TORCHRUN");
  if (torchrun == nullptr) GTEST_SKIP() << "YOKE_PEER_TORCHRUN does not name the torchrun of a Python with torch";
  at::set_num_threads(1);
  const auto gradients = small_model();
  const std::map<std::string, std::function<std::unique_ptr<Optimizer>(NamedTensors)>> makers = {
      {"AdamW", [](NamedTensors p) { return std::make_unique<AdamW>(std::move(p), AdamWOptions{.lr = 0.01}); }},
      {"Adam", [](NamedTensors p) { return std::make_unique<Adam>(std::move(p), AdamOptions{.lr = 0.01}); }},
      {"SGD",
       [](NamedTensors p) {
         return std::make_unique<Sgd>(std::move(p), SgdOptions{.lr = 0.01, .momentum = 0.9, .nesterov = true});
       }},
      {"Adagrad", [](NamedTensors p) { return std::make_unique<Adagrad>(std::move(p), AdagradOptions{.lr = 0.01}); }},
      {"NAdam", [](NamedTensors p) { return std::make_unique<NAdam>(std::move(p), NAdamOptions{.lr = 0.01}); }},
      {"RMSprop",
       [](NamedTensors p) {
         return std::make_unique<RMSprop>(std::move(p), RMSpropOptions{.lr = 0.01, .momentum = 0.9, .centered = true});
       }},
  };
  std::map<std::string, std::unique_ptr<Optimizer>> optimizers;
  PtDict ours;
  for (const auto& [name, make] : makers) {
    auto& optimizer = optimizers[name] = make(parameters_of(small_model()));
    take_steps(*optimizer, gradients, 3);
    PtDict one;
    one.items.push_back({std::string("model"), to_pt(values_of(optimizer->parameters()))});
    one.items.push_back({std::string("optimizer"), to_pt(*optimizer)});
    one.items.push_back({std::string("gradients"), to_pt(gradients)});
    ours.items.push_back({name, std::move(one)});
  }
  const auto from = folder_ / "ours.pt", to = folder_ / "theirs.pt";
  write_pt(from, ours);
  const auto python = (fs::path(torchrun).parent_path() / "python").string();
  ASSERT_EQ(std::system(fmt::format("'{}' '{}' '{}' '{}'", python, test::reference("continue_training.py"),
                                    from.string(), to.string())
                            .c_str()),
            0);
  const auto theirs = read_pt(to);
  for (auto& [name, optimizer] : optimizers) {
    take_steps(*optimizer, gradients, 5);
    expect_equal(values_of(optimizer->parameters()), read_state_dict(to, {name, "model"}), name);
    const auto gone_on = makers.at(name)(parameters_of(small_model()));  // loads Python's final state
    load_pt(*gone_on, *theirs.get_if<PtDict>()->find(name)->get_if<PtDict>()->find("optimizer"));
    expect_equal(optimizer->state_dict(), gone_on->state_dict(), name);
  }
}

}  // namespace
}  // namespace yoke::train

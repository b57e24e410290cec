#include "yoke/train/tied_linear.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fakes/run_ranks.h"
#include "tests/support/hex.h"
#include "tests/support/message_of.h"
#include "tests/support/paths.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/parallel/distributed_data_parallel.h"

namespace yoke::train {
namespace {

using test::message_of;
using test::parse_hex;
using ::testing::HasSubstr;

constexpr int64_t kVocabulary = 11, kWidth = 6, kNumSequences = 8, kLength = 5;

// The model of tests/reference/record_tied_model.py.
struct ModelImpl : torch::nn::Cloneable<ModelImpl> {
  ModelImpl() { reset(); }
  void reset() override {
    embedding = register_module("embedding", torch::nn::Embedding(kVocabulary, kWidth));
    hidden = register_module("hidden", torch::nn::Linear(kWidth, kWidth));
    head = register_module("head", TiedLinear(embedding.ptr(), TiedLinearOptions{.bias = true}));
  }
  at::Tensor forward(const at::Tensor& tokens) { return head(at::tanh(hidden(embedding(tokens)))); }

  torch::nn::Embedding embedding = nullptr;
  torch::nn::Linear hidden = nullptr;
  TiedLinear head = nullptr;
};

std::shared_ptr<ModelImpl> make_model() {
  auto model = std::make_shared<ModelImpl>();
  const at::NoGradGuard no_grad;
  int64_t k = 0;
  for (const auto& [name, parameter] : distinct(model->named_parameters().pairs())) {
    auto values = at::empty(parameter.sizes(), at::kDouble);
    for (int64_t i = 0; i < values.numel(); ++i) {
      values.data_ptr<double>()[i] = std::sin(static_cast<double>(k + i)) / 2;
    }
    parameter.copy_(values);
    k += parameter.numel();
  }
  return model;
}

at::Tensor make_tokens() {
  auto tokens = at::empty({kNumSequences, kLength + 1}, at::kLong);
  for (int64_t s = 0; s < kNumSequences; ++s) {
    for (int64_t t = 0; t <= kLength; ++t) {
      tokens.data_ptr<int64_t>()[s * (kLength + 1) + t] = (7 * s + 3 * t + t * t) % kVocabulary;
    }
  }
  return tokens;
}

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& tokens) {
  return at::cross_entropy_loss(logits.flatten(0, 1), tokens.narrow(1, 1, kLength).flatten());
}

bool is_tied(const ModelImpl& model) {
  return model.head->weight.is_same(model.embedding->weight) &&
         model.named_parameters()["head.weight"].is_same(model.named_parameters()["embedding.weight"]);
}

TEST(TiedLinear, HasPythonsNames) {
  const auto recorded = nlohmann::json::parse(std::ifstream(test::reference("tied_model.json")));
  const auto model = make_model();
  std::vector<std::string> parameters, state;
  for (const auto& [name, tensor] : distinct(model->named_parameters().pairs())) parameters.push_back(name);
  for (const auto& [name, tensor] : model->named_parameters().pairs()) state.push_back(name);
  EXPECT_EQ(parameters, recorded["parameters"].get<std::vector<std::string>>());
  EXPECT_EQ(state, recorded["state"].get<std::vector<std::string>>());
}

// Oracle: PyTorch's training on the whole batch, compared with two ranks with half of it each.
TEST(TiedLinear, TwoRanksTrainAsPython) {
  const auto recorded = nlohmann::json::parse(std::ifstream(test::reference("tied_model.json")));
  const auto tokens = make_tokens();
  fakes::run_ranks(2, [&](dist::World& world) {
    const auto model = make_model();
    DistributedDataParallel net(model, world);
    AdamW optimizer(net, {.lr = 0.01});
    EXPECT_EQ(optimizer.parameters().size(), 4u);
    const auto mine = tokens.narrow(0, world.rank() * kNumSequences / 2, kNumSequences / 2);
    for (const auto& expected : recorded["losses"]) {
      optimizer.zero_grad();
      const auto loss = loss_of(net(mine.narrow(1, 0, kLength)), mine);
      loss.backward();
      const auto mean = loss.detach().clone();
      world.all_reduce(mean, dist::ReduceOp::kMean);
      EXPECT_NEAR(mean.item<double>(), parse_hex(expected), 1e-5);
      optimizer.step();
    }
    EXPECT_TRUE(is_tied(*model));
    const auto values = model->embedding->weight.detach().flatten();
    for (int64_t i = 0; i < values.numel(); ++i) {
      EXPECT_NEAR(values[i].item<double>(), parse_hex(recorded["embedding.weight"][static_cast<size_t>(i)]), 1e-4);
    }
  });
}

TEST(TiedLinear, StaysTiedWhereTheModelMoves) {
  const auto model = make_model();
  for (const auto dtype : {at::kDouble, at::kBFloat16, at::kFloat}) {
    model->to(dtype);
    EXPECT_TRUE(is_tied(*model));
    EXPECT_EQ(model->head->weight.scalar_type(), dtype);
    EXPECT_EQ(model->head->bias.scalar_type(), dtype);
  }
  loss_of(model->forward(make_tokens().narrow(1, 0, kLength)), make_tokens()).backward();
  EXPECT_TRUE(model->embedding->weight.grad().is_same(model->head->weight.grad()));
}

TEST(TiedLinear, StaysTiedInAClone) {
  const auto model = make_model();
  model->eval();
  model->embedding->weight.set_requires_grad(false);
  const auto copy = std::dynamic_pointer_cast<ModelImpl>(model->clone(at::Device(at::kCPU)));
  EXPECT_TRUE(is_tied(*copy));
  EXPECT_FALSE(copy->head->weight.is_same(model->head->weight));
  EXPECT_FALSE(copy->head->bias.is_alias_of(model->head->bias));
  EXPECT_FALSE(copy->head->is_training());
  const auto x = make_tokens().narrow(1, 0, kLength);
  EXPECT_TRUE(at::equal(copy->forward(x), model->forward(x)));

  copy->to(at::kDouble);
  EXPECT_TRUE(is_tied(*copy));
  EXPECT_EQ(model->head->weight.scalar_type(), at::kFloat);
  const at::NoGradGuard no_grad;
  copy->embedding->weight.zero_();
  EXPECT_EQ(copy->head->weight.abs().sum().item<double>(), 0);
  EXPECT_GT(model->head->weight.abs().sum().item<double>(), 0);
}

TEST(TiedLinear, IsSavedAndLoaded) {
  const auto model = make_model(), other = std::make_shared<ModelImpl>();
  load_module(named_tensors(*model), *other);
  EXPECT_TRUE(is_tied(*other));
  EXPECT_TRUE(at::equal(other->head->weight, model->head->weight));
  EXPECT_TRUE(at::equal(other->head->bias, model->head->bias));
}

// The head is registered first, so its source is cloned after the head.
struct BackToFront : torch::nn::Cloneable<BackToFront> {
  BackToFront() { reset(); }
  void reset() override {
    source = torch::nn::Linear(torch::nn::LinearOptions(kWidth, 3).bias(false));
    register_module("head", TiedLinear(source.ptr()));
    register_module("source", source);
  }
  torch::nn::Linear source = nullptr;
};

TEST(TiedLinear, RefusesWhatCannotBeTied) {
  const auto head = TiedLinear(torch::nn::Linear(4, 3).ptr());
  EXPECT_FALSE(head->bias.defined());
  EXPECT_THAT(message_of([&] { head->clone(); }, ErrorCode::kFailedPrecondition),
              HasSubstr("a clone of it alone would have a weight of its own"));
  EXPECT_THAT(message_of([] { BackToFront().clone(); }, ErrorCode::kFailedPrecondition),
              HasSubstr("register both in the same module's reset()"));
  EXPECT_THAT(message_of([] { TiedLinear(std::make_shared<ModelImpl>()); }), HasSubstr("no parameter 'weight'"));
  EXPECT_THAT(message_of([] { TiedLinear(std::shared_ptr<torch::nn::Module>()); }), HasSubstr("no module to be tied"));
}

}  // namespace
}  // namespace yoke::train

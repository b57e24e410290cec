#include "yoke/train/checkpoint/train_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "fakes/run_ranks.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::train {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

torch::nn::Sequential network(int64_t width) {
  torch::nn::Sequential net;
  net->push_back("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, width, 3).bias(false)));
  net->push_back("norm", torch::nn::BatchNorm2d(width));
  return net;
}

void fail_when_warned(const std::string& message) { ADD_FAILURE() << message; }

TEST(TrainState, AModuleComesBackInItsOwnStrides) {
  auto source = network(4);
  CheckpointState state;
  add_module(state, "model", *source);
  EXPECT_EQ(state.tensors.size(), 6u);  // without the bias that conv does not have
  EXPECT_TRUE(state.tensors.contains("model/norm.running_mean"));
  EXPECT_EQ(state.tensors.at("model/norm.num_batches_tracked").dim(), 0);
  EXPECT_FALSE(state.tensors.at("model/conv.weight").requires_grad());

  auto target = network(4);
  for (auto& parameter : target->parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.detach().contiguous(at::MemoryFormat::ChannelsLast));
  }
  load_module(state, "model", *target);
  for (const auto& item : source->named_parameters()) {
    EXPECT_TRUE(target->named_parameters()[item.key()].equal(item.value())) << item.key();
  }
  const auto weight = target->named_parameters()["conv.weight"];
  EXPECT_TRUE(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(weight.requires_grad());
}

TEST(TrainState, ADifferentModuleIsRefusedByNameAndLeftAlone) {
  CheckpointState state;
  add_module(state, "model", *network(4));
  auto wide = network(8);
  const auto before = wide->named_parameters()["norm.weight"].detach().clone();
  state.tensors.at("model/norm.bias").fill_(7);
  EXPECT_THAT(message_of([&] { load_module(state, "model", *wide); }),
              HasSubstr("its model/conv.weight is Float [4, 3, 3, 3], here Float [8, 3, 3, 3] (and 4 more)"));
  EXPECT_TRUE(wide->named_parameters()["norm.bias"].equal(at::zeros({8})));

  auto same = network(4);
  state.tensors.erase("model/conv.weight");
  state.tensors["model/head.weight"] = at::zeros({1});
  state.tensors["modelling"] = at::zeros({1});  // another group
  EXPECT_EQ(message_of([&] { load_module(state, "model", *same); }),
            "the checkpoint does not fit: it lacks model/conv.weight; it has the unknown model/head.weight");
  EXPECT_TRUE(same->named_parameters()["norm.bias"].equal(at::zeros({4})));
  EXPECT_THAT(message_of([&] { add_module(state, "model", *same); }),
              HasSubstr("has a tensor model/norm.bias already"));

  const CheckpointState half{.tensors = {{"g/t", at::zeros({1}, at::kHalf)}}};
  EXPECT_THAT(message_of([&] {
                load_tensors(half, "g", {{"t", at::zeros({1})}});
              }),
              HasSubstr("g/t is Half [1], here Float [1]"));
}

TEST(TrainState, GroupsAndNumbers) {
  CheckpointState state;
  add_tensors(state, "optimizer", {{"a", at::ones({1})}, {"b/c", at::ones({2})}});
  add_tensors(state, "optimizer2", {{"a", at::zeros({1})}});
  const auto group = tensors_in(state, "optimizer");
  EXPECT_EQ(group.size(), 2u);
  EXPECT_EQ(group.at("b/c").numel(), 2);
  EXPECT_TRUE(tensors_in(state, "none").empty());
  state.metadata = {{"epoch", "7"}, {"lr", "fast"}};
  EXPECT_EQ(metadata_int(state, "epoch"), 7);
  EXPECT_THROW(metadata_int(state, "lr"), Error);
  EXPECT_THROW(metadata_int(state, "absent"), Error);
}

// Oracle: after a restore each rank draws what it would have drawn.
TEST(TrainState, EachRankGoesOnWithItsOwnNumbers) {
  CheckpointState saved;
  std::vector<at::Tensor> expected(3);
  fakes::run_ranks(3, [&](dist::World& world) {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(world.rank()) + 10);
    at::rand({5}, generator);
    CheckpointState state;
    add_generator(state, world, "augment", generator);
    expected[static_cast<size_t>(world.rank())] = at::rand({5}, generator);
    if (world.rank() == 0) saved = state;
  });
  EXPECT_EQ(saved.tensors.at("generator/augment").size(0), 3);
  fakes::run_ranks(3, [&](dist::World& world) {
    auto generator = at::detail::createCPUGenerator(99);
    restore_generator(saved, world, "augment", generator, fail_when_warned);
    EXPECT_TRUE(at::rand({5}, generator).equal(expected[static_cast<size_t>(world.rank())]));
  });
  // Another number of ranks: said once, and nobody takes a stranger's stream.
  fakes::run_ranks(4, [&](dist::World& world) {
    auto generator = at::detail::createCPUGenerator(99);
    std::vector<std::string> warnings;
    restore_generator(saved, world, "augment", generator, [&](const auto& message) { warnings.push_back(message); });
    EXPECT_EQ(warnings.size(), world.rank() == 0 ? 1u : 0u);
    if (world.rank() == 0) {
      EXPECT_THAT(warnings, ElementsAre(HasSubstr("is that of 3 ranks, and these are 4")));
    }
    auto fresh = at::detail::createCPUGenerator(99);
    const auto& own = world.rank() < 3 ? expected[static_cast<size_t>(world.rank())] : at::rand({5}, fresh);
    EXPECT_TRUE(at::rand({5}, generator).equal(own));
  });
}

TEST(TrainState, DefaultGeneratorsAndWhatIsMissing) {
  fakes::run_ranks(1, [](dist::World& world) {
    CheckpointState state;
    add_generators(state, world);
    const auto expected = at::rand({4});
    restore_generators(state, world, fail_when_warned);
    EXPECT_TRUE(at::rand({4}).equal(expected));

    std::vector<std::string> warnings;
    const auto collect = [&](const std::string& message) { warnings.push_back(message); };
    restore_generators({}, world, collect);
    state.tensors["generator/cuda"] = at::zeros({1, 16}, at::kByte);
    restore_generators(state, world, collect);
    EXPECT_THAT(warnings, ElementsAre(HasSubstr("has no generator/cpu"), HasSubstr("saved on a GPU")));

    for (const auto& broken : {at::zeros({1, 7}, at::kByte), at::zeros({1, 5056}, at::kByte), at::zeros({1, 5056}),
                               at::zeros({}, at::kByte)}) {
      state.tensors["generator/cpu"] = broken;
      EXPECT_THROW(restore_generators(state, world, collect), Error) << broken.sizes();
    }
  });
}

TEST(TrainState, TheNumberOfThreadsIsAdoptedOrNamed) {
  const int own = at::get_num_threads();
  fakes::run_ranks(1, [&](dist::World& world) {
    at::set_num_threads(2);
    CheckpointState state;
    add_num_threads(state, world);
    EXPECT_EQ(state.tensors.at("num_threads").sizes(), (std::vector<int64_t>{1}));
    restore_num_threads(state, world, ThreadRule::kWarn, fail_when_warned);

    at::set_num_threads(1);
    std::vector<std::string> warnings;
    restore_num_threads(state, world, ThreadRule::kWarn, [&](const auto& message) { warnings.push_back(message); });
    EXPECT_THAT(warnings, ElementsAre(HasSubstr("with 2 threads a rank and this run has 1")));
    EXPECT_EQ(at::get_num_threads(), 1);
    restore_num_threads(state, world, ThreadRule::kAdopt, fail_when_warned);
    EXPECT_EQ(at::get_num_threads(), 2);

    for (const int64_t wrong : {0, -1, 1'000'000}) {
      state.tensors["num_threads"] = at::full({1}, wrong, at::kLong);
      EXPECT_THROW(restore_num_threads(state, world, ThreadRule::kAdopt, fail_when_warned), Error);
    }
  });
  at::set_num_threads(own);
}

TEST(LoadMatching, LeavesWhatIsNewAsItIs) {
  struct Model : torch::nn::Module {
    torch::nn::Linear body{nullptr}, head{nullptr};
    Model(const std::string& name_of_head, int64_t classes) {
      body = register_module("body", torch::nn::Linear(3, 4));
      head = register_module(name_of_head, torch::nn::Linear(4, classes));
    }
  };
  const Model old("head", 10);
  Model fresh("new_head", 2);
  const auto head = fresh.head->weight.detach().clone();
  CheckpointState state;
  add_module(state, "model", old);
  const auto unmatched = load_matching(state, "model", fresh);
  EXPECT_EQ(unmatched.missing, (std::vector<std::string>{"new_head.bias", "new_head.weight"}));
  EXPECT_EQ(unmatched.unexpected, (std::vector<std::string>{"head.bias", "head.weight"}));
  EXPECT_TRUE(torch::equal(fresh.body->weight, old.body->weight));
  EXPECT_TRUE(torch::equal(fresh.head->weight, head));
  Model other("head", 2);
  const auto body = other.body->weight.detach().clone();
  EXPECT_THROW(load_matching(state, "model", other), Error) << "another shape is no new head";
  EXPECT_TRUE(torch::equal(other.body->weight, body));
}

}  // namespace
}  // namespace yoke::train

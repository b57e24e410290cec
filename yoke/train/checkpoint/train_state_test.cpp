#include "yoke/train/checkpoint/train_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/train/checkpoint/checkpoint_folder.h"
#include "yoke/train/checkpoint/detail/state_part.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/meter.h"
#include "yoke/train/optim/ema.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/sharding.h"
#include "yoke/train/tied_linear.h"

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

/// The content that a checkpoint of the state would have, without writing it.
StoredCheckpoint stored(const TrainState& state) {
  auto snapshot = state.snapshot();
  TensorMap tensors;
  for (const auto& slice : snapshot.slices) tensors.emplace(slice.name, slice.flat().view(slice.shape).clone());
  StoredCheckpoint checkpoint{.path = "here", .source = source_of(std::move(tensors))};
  checkpoint.marks.insert(snapshot.values.extract("yoke.parts"));
  checkpoint.metadata = std::move(snapshot.values);
  return checkpoint;
}

/// The tensors of a checkpoint, which a test may change.
TensorMap tensors_of(const StoredCheckpoint& checkpoint) { return read_whole(checkpoint.source); }

template <class... Parts>
TrainState state_of(dist::World& world, std::pair<const char*, Parts&>... parts) {
  TrainState state(world);
  (state.add(parts.first, parts.second), ...);
  return state;
}

TEST(TrainState, AModuleComesBackInItsOwnStrides) {
  fakes::run_ranks(1, [](dist::World& world) {
    auto source = network(4);
    TrainState state(world);
    state.add("model", source);
    const auto checkpoint = stored(state);
    EXPECT_EQ(checkpoint.source.tensors.size(), 6u);  // without the bias that conv does not have
    EXPECT_TRUE(checkpoint.source.tensors.contains("model/norm.running_mean"));
    EXPECT_TRUE(checkpoint.source.tensors.at("model/norm.num_batches_tracked").shape.empty());

    auto target = network(4);
    for (auto& parameter : target->parameters()) {
      if (parameter.dim() == 4) parameter.set_data(parameter.detach().contiguous(at::MemoryFormat::ChannelsLast));
    }
    TrainState other(world);
    other.add("model", *target);
    other.load(checkpoint, fail_when_warned);
    for (const auto& item : source->named_parameters()) {
      EXPECT_TRUE(target->named_parameters()[item.key()].equal(item.value())) << item.key();
    }
    const auto weight = target->named_parameters()["conv.weight"];
    EXPECT_TRUE(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(weight.requires_grad());
  });
}

TEST(TrainState, TheAveragesOfACheckpointLoadIntoAModel) {
  fakes::run_ranks(1, [](dist::World& world) {
    auto source = network(4);
    ExponentialMovingAverage ema(*source);
    ema.update();
    for (auto& parameter : source->parameters()) parameter.detach().add_(1);
    ema.update();
    TrainState state(world);
    state.add("model", source).add("ema", ema);
    const auto checkpoint = stored(state);
    auto target = network(4);
    EXPECT_THAT(
        message_of([&] { load_module(checkpoint.part("ema"), *target); }),
        HasSubstr("is the state of averages, not of a model: load it with StoredCheckpoint::averages(\"ema\")"));
    load_module(checkpoint.averages("ema"), *target);
    const auto loaded = by_name(named_tensors(*target));
    for (const auto& [name, average] : ema.averages()) EXPECT_TRUE(at::equal(loaded.at(name), average)) << name;
  });
}

struct Tied : torch::nn::Module {
  torch::nn::Embedding embedding{nullptr};
  TiedLinear head{nullptr};
  Tied() {
    embedding = register_module("embedding", torch::nn::Embedding(4, 3));
    head = register_module("head", TiedLinear(embedding.ptr()));
  }
};

TEST(TrainState, TheAverageOfATiedWeightLoadsUnderBothNames) {
  Tied source, target;
  const ExponentialMovingAverage ema(source);
  ASSERT_EQ(ema.averages().size(), 1u);
  load_module(ema.averages(), target);
  EXPECT_TRUE(at::equal(target.head->weight, source.embedding->weight));
  TensorMap nothing;
  EXPECT_THAT(message_of([&] { load_module(nothing, target); }), HasSubstr("'embedding.weight', which it lacks"));
}

TEST(TrainState, ADifferentModuleIsRefusedByNameAndLeftAlone) {
  fakes::run_ranks(1, [](dist::World& world) {
    auto narrow = network(4), wide = network(8), same = network(4);
    int64_t epoch = 5;
    TrainState state(world);
    state.add("epoch", epoch).add("model", narrow);
    narrow->named_parameters()["norm.bias"].detach().fill_(7);
    auto checkpoint = stored(state);
    epoch = 0;
    const auto load = [&](auto& model) {
      TrainState into(world);
      into.add("epoch", epoch).add("model", model);
      return message_of([&] { into.load(checkpoint, fail_when_warned); });
    };
    EXPECT_THAT(load(wide),
                HasSubstr("'model' of the state is of another model: the first difference is 'conv.weight', "
                          "Float [4, 3, 3, 3] there and Float [8, 3, 3, 3] in the model"));
    EXPECT_TRUE(wide->named_parameters()["norm.bias"].equal(at::zeros({8})));
    EXPECT_EQ(epoch, 0) << "a part that comes first is as it was too";

    auto tensors = tensors_of(checkpoint);
    tensors.erase("model/conv.weight");
    tensors["modelling"] = at::zeros({1});  // not in the part "model", but in a part "modelling"
    checkpoint.source = source_of(tensors);
    EXPECT_THAT(load(same), HasSubstr("the first difference is 'conv.weight', which it lacks"));
    tensors["model/conv.weight"] = at::zeros({4, 3, 3, 3});
    tensors["model/head.weight"] = at::zeros({1});
    checkpoint.source = source_of(tensors);
    EXPECT_THAT(load(same), HasSubstr("'head.weight', which the model lacks"));
    EXPECT_TRUE(same->named_parameters()["norm.bias"].equal(at::zeros({4})));
    tensors.erase("model/head.weight");
    checkpoint.source = source_of(tensors);
    EXPECT_EQ(load(same), "(nothing thrown)");
    EXPECT_TRUE(same->named_parameters()["norm.bias"].equal(at::full({4}, 7.0)));
    EXPECT_EQ(epoch, 5);
  });
}

TEST(TrainState, NumbersFlagsAndTexts) {
  fakes::run_ranks(2, [](dist::World& world) {
    int64_t epoch = -(1LL << 40);
    int batch = 7;
    uint64_t seed = ~0ULL;
    double best = 0.1 + 0.2;
    bool is_warm = true;
    std::string name = "a \"b\"\n";
    auto state = state_of<int64_t, int, uint64_t, double, bool, std::string>(world, {"epoch", epoch}, {"batch", batch},
                                                                             {"seed", seed}, {"best", best},
                                                                             {"is_warm", is_warm}, {"name", name});
    auto checkpoint = stored(state);
    EXPECT_EQ(checkpoint.metadata.at("best"), "0.30000000000000004");
    epoch = 0, batch = 0, seed = 0, best = 0, is_warm = false, name = "";
    state.load(checkpoint, fail_when_warned);
    EXPECT_EQ(epoch, -(1LL << 40));
    EXPECT_EQ(batch, 7);
    EXPECT_EQ(seed, ~0ULL);
    EXPECT_EQ(best, 0.1 + 0.2);
    EXPECT_TRUE(is_warm);
    EXPECT_EQ(name, "a \"b\"\n");
    for (const auto& [key, wrong] :
         StringMap{{"epoch", "7.5"}, {"batch", "4294967296"}, {"best", "low"}, {"is_warm", ""}}) {
      auto damaged = checkpoint;
      damaged.metadata[key] = wrong;
      EXPECT_THROW(state.load(damaged, fail_when_warned), Error) << key;
    }
  });
}

TEST(TrainState, NamesAreOfOnePart) {
  fakes::run_ranks(1, [](dist::World& world) {
    auto tensor = at::zeros({1});
    TrainState state(world);
    state.add("a", tensor).add("b/c", tensor);
    for (const auto* name : {"a", "a/x", "b", "", "yoke.a", "b/c/d"}) {
      EXPECT_THROW(state.add(name, tensor), Error) << name;
    }
    state.add("ab", tensor).add("b/d", tensor);
  });
}

TEST(TrainState, PartsThatOneSideLacksAreNamed) {
  fakes::run_ranks(2, [](dist::World& world) {
    auto a = at::full({1}, 1.0), b = at::full({1}, 2.0);
    auto saved = state_of<at::Tensor, at::Tensor>(world, {"a", a}, {"b", b});
    const auto checkpoint = stored(saved);
    auto c = at::zeros({1});
    auto more = state_of<at::Tensor, at::Tensor>(world, {"a", a}, {"c", c});
    EXPECT_THAT(message_of([&] { more.load(checkpoint, fail_when_warned); }), HasSubstr("has no 'c'"));
    std::vector<std::string> warnings;
    auto less = state_of<at::Tensor>(world, {"b", b});
    b.zero_();
    less.load(checkpoint, [&](const std::string& message) { warnings.push_back(message); });
    EXPECT_EQ(b.item<float>(), 2);
    if (world.rank() == 0) {
      EXPECT_THAT(warnings, ElementsAre(HasSubstr("also has a, which this training's state has not")));
    } else {
      EXPECT_TRUE(warnings.empty());
    }
    // An optimizer before its first step has no tensors, but is still a part.
    auto w = at::zeros({2}).requires_grad_();
    Sgd fresh({{"w", w}}, {.momentum = 0.9});
    const auto of_optimizer = stored(state_of<Sgd>(world, {"optimizer", fresh}));
    state_of<Sgd>(world, {"optimizer", fresh}).load(of_optimizer, fail_when_warned);
  });
}

// Oracle: after a restore each rank draws the numbers that it would have drawn.
TEST(TrainState, EachRankGoesOnWithItsOwnNumbers) {
  StoredCheckpoint saved;
  std::vector<at::Tensor> expected(3);
  fakes::run_ranks(3, [&](dist::World& world) {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(world.rank()) + 10);
    at::rand({5}, generator);
    auto checkpoint = stored(state_of<at::Generator>(world, {"augment", generator}));
    expected[static_cast<size_t>(world.rank())] = at::rand({5}, generator);
    if (world.rank() == 0) saved = std::move(checkpoint);
  });
  EXPECT_EQ(saved.source.tensors.at("augment").shape.front(), 3);
  fakes::run_ranks(3, [&](dist::World& world) {
    auto generator = at::detail::createCPUGenerator(99);
    state_of<at::Generator>(world, {"augment", generator}).load(saved, fail_when_warned);
    EXPECT_TRUE(at::rand({5}, generator).equal(expected[static_cast<size_t>(world.rank())]));
  });
  // If the number of ranks differs, there is one warning, and no rank loads another rank's random numbers.
  fakes::run_ranks(4, [&](dist::World& world) {
    auto generator = at::detail::createCPUGenerator(99);
    std::vector<std::string> warnings;
    state_of<at::Generator>(world, {"augment", generator}).load(saved, [&](const auto& message) {
      warnings.push_back(message);
    });
    EXPECT_EQ(warnings.size(), world.rank() == 0 ? 1u : 0u);
    if (world.rank() == 0) {
      EXPECT_THAT(warnings, ElementsAre(HasSubstr("is for 3 ranks, and this job has 4")));
    }
    auto fresh = at::detail::createCPUGenerator(99);
    const auto& own = world.rank() < 3 ? expected[static_cast<size_t>(world.rank())] : at::rand({5}, fresh);
    EXPECT_TRUE(at::rand({5}, generator).equal(own));
  });
}

TEST(TrainState, DefaultGeneratorsAndWhatIsMissing) {
  fakes::run_ranks(1, [](dist::World& world) {
    TrainState state(world);
    state.add_generators();
    auto checkpoint = stored(state);
    const auto expected = at::rand({4});
    state.load(checkpoint, fail_when_warned);
    EXPECT_TRUE(at::rand({4}).equal(expected));

    std::vector<std::string> warnings;
    const auto collect = [&](const std::string& message) { warnings.push_back(message); };
    auto tensors = tensors_of(checkpoint);
    checkpoint.source = source_of({});
    checkpoint.marks["yoke.parts"] = R"(["generator/cuda"])";
    state.load(checkpoint, collect);
    EXPECT_THAT(warnings, ElementsAre(HasSubstr("has no generator/cpu"), HasSubstr("also has generator/cuda")));

    for (const auto& broken : {at::zeros({1, 7}, at::kByte), at::zeros({1, 5056}, at::kByte), at::zeros({1, 5056}),
                               at::zeros({}, at::kByte)}) {
      checkpoint.source = source_of({{"generator/cpu", broken}});
      EXPECT_THROW(state.load(checkpoint, collect), Error) << broken.sizes();
    }
  });
}

TEST(TrainState, TheNumberOfThreadsIsAdoptedOrNamed) {
  const int own = at::get_num_threads();
  fakes::run_ranks(1, [&](dist::World& world) {
    at::set_num_threads(2);
    TrainState warning(world), adopting(world);
    warning.add_num_threads();
    adopting.add_num_threads(ThreadRule::kAdopt);
    auto checkpoint = stored(warning);
    EXPECT_EQ(checkpoint.source.tensors.at("num_threads").shape, (std::vector<int64_t>{1}));
    warning.load(checkpoint, fail_when_warned);

    at::set_num_threads(1);
    std::vector<std::string> warnings;
    warning.load(checkpoint, [&](const auto& message) { warnings.push_back(message); });
    EXPECT_THAT(warnings, ElementsAre(HasSubstr("with 2 threads per rank, and this run has 1")));
    EXPECT_EQ(at::get_num_threads(), 1);
    adopting.load(checkpoint, fail_when_warned);
    EXPECT_EQ(at::get_num_threads(), 2);

    for (const int64_t wrong : {0, -1, 1'000'000}) {
      checkpoint.source = source_of({{"num_threads", at::full({1}, wrong, at::kLong)}});
      EXPECT_THROW(adopting.load(checkpoint, fail_when_warned), Error);
    }
  });
  at::set_num_threads(own);
}

// Oracle: the mean over all ranks' values. It must not depend on the number of ranks after resuming.
TEST(TrainState, MetersGoOnOnAnyNumberOfRanks) {
  StoredCheckpoint saved;
  fakes::run_ranks(2, [&](dist::World& world) {
    Mean mean;
    mean.add(at::full({}, world.rank() == 0 ? 1.0 : 4.0), world.rank() + 1);
    auto checkpoint = stored(state_of<Mean>(world, {"loss", mean}));
    if (world.rank() == 0) saved = std::move(checkpoint);
  });
  for (const int64_t num_ranks : {1, 2, 3}) {
    fakes::run_ranks(num_ranks, [&](dist::World& world) {
      Mean mean;
      state_of<Mean>(world, {"loss", mean}).load(saved, fail_when_warned);
      EXPECT_DOUBLE_EQ(mean.read(world), 3.0);
    });
  }
}

// A state that is divided between ranks is saved whole and loaded on any number of ranks. The last rank may hold no
// elements of it.
TEST(TrainState, AnOptimizersStateIsDividedAsItsParameters) {
  struct Custom {
    NamedTensors parameters;
    TensorMap state;
    NamedTensors state_layout() const { return parameters; }
    const TensorMap& state_dict() const { return state; }
    void load_state_dict(const TensorMap& given) { state = given; }
  };
  // This rank's parts of the parameters net.w [2, 3] and s [].
  const auto divided = [](dist::World& world) {
    Custom custom;
    const int64_t length = (6 + world.size() - 1) / world.size(), first = std::min<int64_t>(6, length * world.rank());
    const int64_t count = std::min<int64_t>(length, 6 - first);
    if (count > 0) {
      const auto part = at::zeros({1, count});
      mark_sharded(part, {.shape = {2, 3}, .first = first, .group = &world});
      custom.parameters.emplace_back("net.w", part);
      custom.state = {{"exp_avg.net.w", at::arange(first, first + count).to(at::kFloat).view({1, count})},
                      {"step.net.w", at::full({}, 5.0f)}};
    }
    if (world.rank() == world.size() - 1) {
      const auto part = at::zeros({1});
      mark_sharded(part, {.shape = {}, .first = 0, .group = &world});
      custom.parameters.emplace_back("s", part);
      custom.state.emplace("exp_avg.s", at::full({1}, 9.0f));
      custom.state.emplace("step.s", at::full({}, 5.0f));
    }
    return custom;
  };
  const test::TemporaryFolder folder;
  for (const int64_t saved_by : {1, 2, 4}) {
    fakes::run_ranks(saved_by, [&](dist::World& world) {
      auto custom = divided(world);
      CheckpointFolder(folder.path()).save(saved_by, state_of<Custom>(world, {"o", custom}));
      const auto whole = read_whole(read_checkpoint(CheckpointFolder(folder.path()).path_of(saved_by)).part("o"));
      ASSERT_EQ(whole.size(), 4u);
      EXPECT_TRUE(whole.at("exp_avg.net.w").equal(at::arange(6).to(at::kFloat).view({2, 3})));
      EXPECT_TRUE(whole.at("exp_avg.s").equal(at::full({}, 9.0f)));
    });
    for (const int64_t loaded_by : {1, 2, 4}) {
      fakes::run_ranks(loaded_by, [&](dist::World& world) {
        auto custom = divided(world);
        const auto expected = std::exchange(custom.state, {});
        auto state = state_of<Custom>(world, {"o", custom});
        ASSERT_EQ(CheckpointFolder(folder.path(), {.warn = fail_when_warned}).load_latest(state)->step, saved_by);
        ASSERT_EQ(custom.state.size(), expected.size());
        for (const auto& [name, tensor] : expected) {
          EXPECT_TRUE(custom.state.at(name).view({-1}).equal(tensor.view({-1}))) << name;
        }
      });
    }
  }
  fakes::run_ranks(2, [&](dist::World& world) {
    auto custom = divided(world);
    auto state = state_of<Custom>(world, {"o", custom});
    const auto load = [&](TensorMap tensors) {
      StoredCheckpoint checkpoint{.path = "here", .source = source_of(std::move(tensors))};
      return message_of([&] { state.load(checkpoint, fail_when_warned); });
    };
    EXPECT_THAT(load({{"o/exp_avg.net.w", at::zeros({3, 2})}}), HasSubstr("'exp_avg.net.w' is Float [3, 2] there"));
    EXPECT_THAT(load({{"o/exp_avg.net.v", at::zeros({3, 2})}}),
                HasSubstr("'o/exp_avg.net.v', which is of no parameter here"));
    custom.state = {{"factor.net.w", at::zeros({7})}};
    EXPECT_THAT(message_of([&] { state.snapshot(); }), HasSubstr("'factor.net.w' is Float [7]: neither"));
  });
}

/// What an OwnState has, as text and bytes.
std::vector<std::string> contents(const TrainState::OwnState& own) {
  std::vector<std::string> contents;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    const auto dense = tensor.detach().contiguous();
    contents.push_back(name + " " + std::string(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()));
  };
  for (const auto& slice : own.slices) {
    add(fmt::format("{} [{}] from {}", slice.name, fmt::join(slice.shape, ", "), slice.first), slice.values);
  }
  for (const auto& [name, row] : own.rows) add(name, row);
  for (const auto& [name, text] : own.values) contents.push_back(name + " " + text);
  return contents;
}

TEST(TrainState, WhatARankHasIsRenewedAsIfItWereTakenAnew) {
  fakes::run_ranks(1, [](dist::World& world) {
    auto net = network(4);
    Sgd optimizer(parameters_of(net), {.lr = 0.1, .momentum = 0.9});
    ExponentialMovingAverage ema(net);
    Mean loss;
    int64_t count = 0;
    auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
    auto flags = at::zeros({2}, at::kBool);
    TrainState state(world);
    state.add("net", net).add("optimizer", optimizer).add("ema", ema).add("loss", loss).add("count", count);
    state.add("generator", generator).add("flags", flags);
    const auto step = [&] {
      for (auto& parameter : net->parameters()) parameter.mutable_grad() = at::ones_like(parameter);
      for (auto& buffer : net->buffers()) buffer.add_(1);
      optimizer.step(0.1 / static_cast<double>(++count));
      ema.update();
      loss.add(at::full({}, 0.5), 2);
      at::rand({3}, generator);
      flags[0] = count % 2 == 0;
    };
    auto own = state.own_state();
    step();
    EXPECT_FALSE(renew_own(state, own)) << "the optimizer has states now";
    own = state.own_state();
    for (int i = 0; i < 3; ++i) {
      step();
      ASSERT_TRUE(renew_own(state, own));
      EXPECT_EQ(contents(own), contents(state.own_state()));
    }
    flags = at::ones({2}, at::kBool);
    net->parameters()[0].set_data(at::ones({4, 3, 3, 3}));
    optimizer.load_state_dict(optimizer.state_dict());  // other tensors with the same names
    ASSERT_TRUE(renew_own(state, own));
    EXPECT_EQ(contents(own), contents(state.own_state()));
    flags = at::ones({3}, at::kBool);
    EXPECT_FALSE(renew_own(state, own)) << "a tensor has another shape";
    own = state.own_state();
    net->push_back("more", torch::nn::Linear(2, 2));
    EXPECT_FALSE(renew_own(state, own)) << "the module has other tensors";
    own = state.own_state();
    double further = 0;
    state.add("further", further);
    EXPECT_FALSE(renew_own(state, own)) << "the state has another part";
  });
}

TEST(TrainState, ALoadThatOneRankCannotDoFailsOnEveryRankAndChangesNothing) {
  fakes::run_ranks(2, [&](dist::World& world) {
    auto a = at::zeros({4}), b = at::zeros({4});
    auto state = state_of<at::Tensor, at::Tensor>(world, {"a", a}, {"b", b});
    StoredCheckpoint checkpoint{.path = "here",
                                .source = source_of({{"a", at::full({4}, 1.0)}, {"b", at::full({4}, 1.0)}})};
    checkpoint.source.read = [&, read = checkpoint.source.read](const std::string& name, int64_t first,
                                                                int64_t length) {
      if (world.rank() == 1 && name == "b") throw Error(ErrorCode::kDataLoss, "this part is damaged");
      return read(name, first, length);
    };
    EXPECT_THAT(message_of([&] { state.load(checkpoint, fail_when_warned); }, ErrorCode::kDataLoss),
                HasSubstr("this part is damaged"));
    EXPECT_TRUE(a.equal(at::zeros({4})));
    EXPECT_TRUE(b.equal(at::zeros({4})));
  });
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
  const auto source = [&] {
    const auto tensors = named_tensors(old);
    return source_of(TensorMap(tensors.begin(), tensors.end()));
  }();
  const auto unmatched = load_matching(source, fresh);
  EXPECT_EQ(unmatched.missing, (std::vector<std::string>{"new_head.weight", "new_head.bias"}));
  EXPECT_EQ(unmatched.unexpected, (std::vector<std::string>{"head.bias", "head.weight"}));
  EXPECT_TRUE(torch::equal(fresh.body->weight, old.body->weight));
  EXPECT_TRUE(torch::equal(fresh.head->weight, head));
  Model other("head", 2);
  const auto body = other.body->weight.detach().clone();
  EXPECT_THROW(load_matching(source, other), Error) << "another shape is no new head";
  EXPECT_TRUE(torch::equal(other.body->weight, body));
}

TEST(LoadModule, IgnoresAHeadOfAnotherShape) {
  struct Model : torch::nn::Module {
    torch::nn::Linear body{nullptr}, fc{nullptr}, fc2{nullptr};
    explicit Model(int64_t classes) {
      body = register_module("body", torch::nn::Linear(3, 4));
      fc = register_module("fc", torch::nn::Linear(4, classes));
      fc2 = register_module("fc2", torch::nn::Linear(2, 2));
    }
  };
  const Model pretrained(1000);
  Model fresh(10);
  const auto head = fresh.fc->weight.detach().clone();
  EXPECT_THAT(message_of([&] { load_module(named_tensors(pretrained), fresh); }), HasSubstr("'fc.bias'"));
  load_module(named_tensors(pretrained), fresh, {.ignore = {"fc"}});
  EXPECT_TRUE(torch::equal(fresh.body->weight, pretrained.body->weight));
  EXPECT_TRUE(torch::equal(fresh.fc2->weight, pretrained.fc2->weight)) << "fc2 is not in fc";
  EXPECT_TRUE(torch::equal(fresh.fc->weight, head));
  load_module(named_tensors(pretrained), fresh, {.ignore = {"fc.weight", "fc.bias"}});
  EXPECT_THAT(message_of([&] { load_module(named_tensors(pretrained), fresh, {.ignore = {"fc.weight"}}); }),
              HasSubstr("'fc.bias'"));
  EXPECT_THAT(message_of([&] {
                load_module(named_tensors(pretrained), fresh, {.ignore = {"fc", "classifier"}});
              }),
              HasSubstr("'classifier' is to be ignored, and neither"));
}

}  // namespace
}  // namespace yoke::train

// Tests errors of FullyShardedDataParallel, and the messages that other ranks get.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>
#include <torch/serialize/archive.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <string>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/train/format/optimizer_pt.h"
#include "yoke/train/format/pt_file.h"
#include "yoke/train/format/safetensors.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/optim/ema.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/precision/grad_scaler.h"
#include "yoke/train/shard/fully_sharded_data_parallel.h"
#include "yoke/train/shard/network_test.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

using dist::World;
using fakes::run_ranks;
using test::message_of;
using testing::AnyOf;
using testing::HasSubstr;
namespace nn = torch::nn;

TEST(FullyShardedDataParallel, RefusesWhatCannotWork) {
  World world(RankEnv{}, {.device = c10::Device(c10::kCPU)});
  auto network = make_network();
  EXPECT_THAT(message_of([&] { FullyShardedDataParallel(*network, world, {.units = {"block7"}}); }),
              HasSubstr("the unit 'block7' is not a submodule"));
  EXPECT_THAT(message_of([&] {
                FullyShardedDataParallel(*network, world, {.units = {"block0", "block0"}});
              }),
              HasSubstr("'block0' is named twice"));
  network->blocks[1]->wide = network->blocks[1]->replace_module("wide", network->blocks[0]->wide);
  EXPECT_THAT(message_of([&] { FullyShardedDataParallel(*network, world, {.units = kUnits}); }),
              HasSubstr("'block0.wide.weight' and 'block1.wide.weight' are one parameter in two units"));

  FullyShardedDataParallel sharded(*network, world, {.units = {"block2"}});  // block0 and block1 are not units
  EXPECT_THAT(message_of([&] {
                sharded.forward(*network->blocks[0], torch::ones({1, 10}));
              }),
              HasSubstr("is not a unit"));
  EXPECT_THROW(FullyShardedDataParallel(*network, world), Error) << "sharded twice";
  EXPECT_NO_THROW(sharded(torch::ones({1, 6}))) << "and the first one goes on";
  world.shutdown();
}

TEST(FullyShardedDataParallel, AParameterWithTwoNamesInOneUnitIsOneParameter) {
  const Batch batch;
  const auto tie = [](Network& network) {
    network.blocks[1]->wide = network.blocks[1]->replace_module("wide", network.blocks[0]->wide);
  };
  auto plain = make_network();
  tie(*plain);
  loss_of(plain->forward(batch.x), batch).backward();
  run_ranks(2, [&](World& world) {
    auto network = make_network();
    tie(*network);
    FullyShardedDataParallel sharded(*network, world, {.units = {"block2"}});
    const auto part = batch.part(world.rank(), world.size());
    loss_of(sharded(part.x), part).backward();
    {
      const torch::NoGradGuard no_grad;
      for (const auto& [name, shard] : sharded.parameters()) shard.copy_(shard.grad());
    }
    const auto whole = whole_tensors(world, *network);
    if (world.rank() != 0) return;
    EXPECT_EQ(whole.size(), 16u);
    for (const auto& item : plain->named_parameters()) {
      EXPECT_TRUE(torch::allclose(whole.at(item.key()), item.value().grad(), 1e-4, 1e-6)) << item.key();
    }
  });
}

TEST(FullyShardedDataParallel, ModelsThatDifferAreNamedOnEveryRank) {
  std::atomic<int> count = 0;
  run_ranks(2, [&](World& world) {
    auto network = make_network(0, world.rank() == 1 ? 11 : 10);
    EXPECT_THAT(message_of([&] { FullyShardedDataParallel(*network, world, {.units = kUnits}); }),
                HasSubstr("on rank 1 it has 'first.weight Float [11, 6] trained' where rank 0 has"));
    ++count;
  });
  EXPECT_EQ(count, 2);
}

TEST(FullyShardedDataParallel, OptionsThatDifferAreNamedOnEveryRank) {
  const auto expect = [](const FullyShardedOptions& zero, const FullyShardedOptions& one, const std::string& text) {
    std::atomic<int> count = 0;
    run_ranks(2, [&](World& world) {
      auto network = make_network();
      EXPECT_THAT(message_of([&] { FullyShardedDataParallel(*network, world, world.rank() == 0 ? zero : one); }),
                  HasSubstr(text));
      ++count;
    });
    EXPECT_EQ(count, 2);
  };
  expect({.units = {"block0", "block1"}}, {.units = {"block1", "block0"}}, "on rank 1 it has 'units: block1, block0");
  expect({}, {.reshard_after_forward = false}, "reshard_after_forward: false");
  expect({}, {.compute_dtype = at::kBFloat16}, "compute_dtype: BFloat16");
  expect({}, {.units = {"block7"}}, "on rank 1 it has 'units: block7");
}

TEST(FullyShardedDataParallel, AParameterThawedAfterConstructionIsNamed) {
  run_ranks(1, [](World& world) {
    auto network = make_network();
    network->first->weight.set_requires_grad(false);
    FullyShardedDataParallel sharded(*network, world, {.units = kUnits});
    network->first->weight.set_requires_grad(true);
    try {
      sharded(torch::ones({1, 6}));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("'first.weight' was frozen when the model was sharded"));
    }
  });
}

// torch::load replaces a parameter's memory, and the next gather would drop the loaded values.
TEST(FullyShardedDataParallel, AParameterWithOtherMemoryIsNamed) {
  run_ranks(2, [](World& world) {
    auto network = make_network();
    FullyShardedDataParallel sharded(*network, world, {.units = kUnits});
    loss_of(sharded(Batch().x), Batch()).backward();
    network->blocks[1]->wide->bias.set_data(torch::ones({30}));
    try {
      sharded(torch::ones({1, 6}));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("'block1.wide.bias' has other memory"));
    }
  });
}

struct WithTable : nn::Module {
  at::Tensor table;
  nn::Linear linear{nullptr};
  WithTable() {
    table = register_parameter("table", torch::arange(1000, 1006), /*requires_grad=*/false);
    linear = register_module("linear", nn::Linear(6, 6));
  }
  at::Tensor forward(const at::Tensor& x) { return linear(x) + table; }
};

// The table contains 1001, which is not representable in bfloat16.
TEST(FullyShardedDataParallel, ComputeDtypeIsNotForIntegers) {
  run_ranks(2, [](World& world) {
    WithTable model;
    FullyShardedDataParallel sharded(model, world, {.compute_dtype = at::kBFloat16});
    sharded(torch::ones({1, 6}, at::kBFloat16));  // keeps the outermost unit gathered
    EXPECT_TRUE(torch::equal(model.table, torch::arange(1000, 1006)));
  });
}

/// A module that keeps a term of the loss in a member, instead of returning it from forward.
struct WithLoss : nn::Module {
  nn::Linear linear{nullptr};
  at::Tensor loss;
  WithLoss() { linear = register_module("linear", nn::Linear(6, 6)); }
  at::Tensor forward(const at::Tensor& x) {
    const auto y = linear(x);
    loss = linear->bias.square().sum();
    return y;
  }
};

// The error occurs on one rank only. The other ranks must report its message too.
TEST(FullyShardedDataParallel, AGradientOutsideOfAUnitIsNamedOnEveryRank) {
  std::array<std::string, 2> messages;
  const auto body = [&](World& world) {
    WithLoss model;
    FullyShardedDataParallel sharded(model, world);
    const auto output = sharded(torch::ones({2, 6}));
    const auto loss = world.rank() == 1 ? model.loss : output.sum();
    try {
      loss.backward();
    } catch (const std::exception& error) {
      messages[static_cast<size_t>(world.rank())] = error.what();
      throw;  // leaves without shutdown()
    }
  };
  EXPECT_THROW(run_ranks(2, body, std::chrono::seconds(3)), Error);
  for (const auto& message : messages) EXPECT_THAT(message, HasSubstr("parameter 'linear.bias' has a gradient"));
}

TEST(FullyShardedDataParallel, ARankThatStopsIsNamedByTheOthers) {
  std::string message;
  std::atomic<bool> gave_up = false;
  run_ranks(
      2,
      [&](World& world) {
        auto network = make_network();
        FullyShardedDataParallel sharded(*network, world, {.units = kUnits});
        const Batch batch;
        const auto output = sharded(batch.x);
        if (world.rank() == 1) {  // rank 1 runs no backward, and leaves when rank 0 has timed out
          gave_up.wait(false);
          return;
        }
        try {
          loss_of(output, batch).backward();
        } catch (const Error& error) {
          message = error.what();
        }
        gave_up = true;
        gave_up.notify_all();
      },
      std::chrono::seconds(5));
  EXPECT_THAT(message, HasSubstr("rank 1 has not arrived"));
}

// ---- Code that PyTorch users often write, and that would silently give wrong results -------------------------------

/// Runs `misuse` on two ranks after one backward. Returns the error of each rank; both must have one.
std::vector<std::string> refusals(
    const std::function<void(Network& model, FullyShardedDataParallel<Network>& net)>& misuse) {
  std::vector<std::string> messages(2);
  run_ranks(2, [&](World& world) {
    const auto network = make_network();
    FullyShardedDataParallel net(*network, world, {.units = kUnits});
    loss_of(net(Batch().x), Batch()).backward();
    messages[static_cast<size_t>(world.rank())] = message_of([&] { misuse(*network, net); });
  });
  return messages;
}

TEST(ShardedMisuse, IsRefusedOnEveryRankWithARemedy) {
  const test::TemporaryFolder folder;
  using Net = FullyShardedDataParallel<Network>;
  const std::vector<std::pair<std::string, std::function<void(Network&, Net&)>>> cases = {
      {"an optimizer over the model", [](Network& model, Net&) { AdamW optimizer(model.named_parameters().pairs()); }},
      {"an optimizer over the module", [](Network& model, Net&) { Sgd optimizer(model); }},
      {"an average of the model", [](Network& model, Net&) { ExponentialMovingAverage average(model); }},
      {"clipping the model", [](Network& model, Net&) { clip_grad_norm(parameters_of(model), {.max_norm = 1}); }},
      {"clipping the model's values", [](Network& model, Net&) { clip_grad_value(parameters_of(model), 1); }},
      {"the model for Python", [](Network& model, Net&) { to_pt(named_tensors(model)); }},
      {"parts for Python",
       [](Network&, Net& net) {
         TensorMap parts;
         for (const auto& [name, part] : net.parameters()) parts.emplace(name, part);
         to_pt(parts);
       }},
      {"the optimizer's parts for Python",
       [](Network&, Net& net) {
         AdamW optimizer(net);
         optimizer.step();
         to_pt(optimizer);
       }},
      {"parts in a file",
       [&](Network&, Net& net) {
         TensorMap parts;
         for (const auto& [name, part] : net.parameters()) parts.emplace(name, part);
         write_safetensors(folder.path("parts.safetensors"), parts);
       }},
  };
  for (const auto& [name, misuse] : cases) {
    for (const auto& message : refusals(misuse)) {
      EXPECT_THAT(message, AnyOf(HasSubstr("use the FullyShardedDataParallel's parameters()"),
                                 HasSubstr("this rank's part of a tensor")))
          << name;
    }
  }
}

// Functions of libtorch see tensors without elements, and would do nothing.
TEST(ShardedMisuse, LibtorchsFunctionsAreRefusedWithARemedy) {
  using Net = FullyShardedDataParallel<Network>;
  const auto stepping = [](const auto& optimizer_of) {
    return [optimizer_of](Network& model, Net&) { optimizer_of(model.parameters()).step(); };
  };
  const std::vector<std::pair<std::string, std::function<void(Network&, Net&)>>> cases = {
      {"train::AdamW optimizer(net)",
       stepping([](auto p) { return torch::optim::SGD(p, torch::optim::SGDOptions(0.1)); })},
      {"train::AdamW optimizer(net)", stepping([](auto p) { return torch::optim::Adam(p); })},
      {"train::AdamW optimizer(net)", stepping([](auto p) { return torch::optim::AdamW(p); })},
      {"train::AdamW optimizer(net)", stepping([](auto p) { return torch::optim::RMSprop(p); })},
      {"net.clip_grad_norm", [](Network& model, Net&) { nn::utils::clip_grad_norm_(model.parameters(), 1); }},
      {"net.clip_grad_norm", [](Network& model, Net&) { nn::utils::clip_grad_value_(model.parameters(), 1); }},
      {"train::norms(net.parameters())", [](Network& model, Net&) { model.parameters()[0].sum(); }},
      {"train::norms(net.parameters())",
       [](Network& model, Net&) {
         auto penalty = torch::zeros({});
         for (const auto& parameter : model.parameters()) penalty = penalty + parameter.pow(2).sum();
       }},
      {"gather_tensors(world", [](Network& model, Net&) { model.blocks[1]->parameters()[0].norm(); }},
      {"load_module, or set this rank's part of it, which is in net.parameters(): aten::zero_ was called",
       [](Network& model, Net&) {
         const torch::NoGradGuard no_grad;
         model.first->weight.zero_();
       }},
      {"to set a parameter's value, set it before the model is sharded",
       [](Network& model, Net&) {
         const torch::NoGradGuard no_grad;
         model.first->weight.copy_(torch::ones({10, 6}));
       }},
      {"`net(x)`", [](Network& model, Net&) { model.forward(Batch().x); }},
      {"", [](Network& model, Net&) { model.zero_grad(/*set_to_none=*/true); }},
      {"",
       [](Network& model, Net&) { torch::optim::SGD(model.parameters(), torch::optim::SGDOptions(0.1)).zero_grad(); }},
      {"TrainState",
       [](Network& model, Net&) {
         torch::serialize::OutputArchive archive;
         model.save(archive);
       }},
      {"TrainState",
       [](Network& model, Net&) {
         torch::serialize::OutputArchive archive;
         model.blocks[1]->save(archive);
       }},
  };
  run_ranks(2, [&](World& world) {
    const auto network = make_network();
    FullyShardedDataParallel net(*network, world, {.units = kUnits});
    for (const auto& [remedy, use] : cases) {
      loss_of(net(Batch().x), Batch()).backward();
      const auto call = [&use = use, &network, &net] { use(*network, net); };
      if (remedy.empty()) {
        EXPECT_NO_THROW(call());
      } else {
        EXPECT_THAT(message_of(call, ErrorCode::kFailedPrecondition), HasSubstr(remedy));
      }
    }
  });
}

TEST(ShardedMisuse, AModelThatIsNoLongerShardedHasItsOwnSubmodules) {
  World world(RankEnv{}, {.device = c10::Device(c10::kCPU)});
  const auto network = make_network();
  const auto names = network->named_modules().keys();
  { FullyShardedDataParallel net(*network, world, {.units = kUnits}); }
  EXPECT_EQ(network->named_modules().keys(), names);
  world.shutdown();
}

// Users of PyTorch's accelerate construct the optimizer before the model is sharded, and call the model's zero_grad.
TEST(ShardedMisuse, AnOptimizerFromBeforeAndTheModelsZeroGrad) {
  run_ranks(2, [](World& world) {
    const auto network = make_network();
    AdamW before(*network);
    FullyShardedDataParallel net(*network, world, {.units = kUnits});
    loss_of(net(Batch().x), Batch()).backward();
    EXPECT_THAT(message_of([&] { before.step(); }), HasSubstr("use the FullyShardedDataParallel's parameters()"));
    const double once = net.clip_grad_norm(1e9).item<double>();
    for (int i = 0; i < 2; ++i) {
      network->zero_grad();
      loss_of(net(Batch().x), Batch()).backward();
      EXPECT_NEAR(net.clip_grad_norm(1e9).item<double>(), once, 1e-5);
    }
    loss_of(net(Batch().x), Batch()).backward();  // without zero_grad gradients accumulate
    EXPECT_NEAR(net.clip_grad_norm(1e9).item<double>(), 2 * once, 1e-5);
  });
}

// Functions that load and gather a model give the same result for a sharded model as for a whole one.
TEST(ShardedMisuse, ASavedAndALoadedModelIsWhole) {
  const test::TemporaryFolder folder;
  const auto values = copy_of_parameters(*make_network(7));
  run_ranks(2, [&](World& world) {
    const auto network = make_network();
    FullyShardedDataParallel net(*network, world, {.units = kUnits});
    load_module(values, *network);
    for (const auto& [name, tensor] : whole_tensors(world, *network)) {
      EXPECT_TRUE(torch::equal(tensor, values.at(name))) << name;
    }
    write_pt(folder.path(fmt::format("{}.pt", world.rank())), to_pt(gather_tensors(world, named_tensors(*network))));
    AdamW optimizer(net);
    loss_of(net(Batch().x), Batch()).backward();
    optimizer.step();
    const auto state = optimizer.state_dict();
    const auto whole = gather_tensors(world, {state.begin(), state.end()});
    if (world.rank() != 0) return;
    EXPECT_EQ(whole.size(), 3 * values.size() + 1);  // and "lr"
    for (const auto& [name, tensor] : whole) {
      if (name.starts_with("step.") || name == "lr") continue;
      EXPECT_EQ(tensor.sizes(), values.at(name.substr(name.find('.') + 1)).sizes()) << name;
    }
  });
  const auto theirs = read_state_dict(folder.path("0.pt"));
  ASSERT_EQ(theirs.size(), values.size());
  for (const auto& [name, tensor] : theirs) EXPECT_TRUE(torch::equal(tensor, values.at(name))) << name;
}

// A common rule (docs/optim.md) is that parameters with one dimension have no weight decay. The rule must give the same
// result for a part.
TEST(ShardedMisuse, APartHasTheDimensionsOfItsParameter) {
  run_ranks(2, [](World& world) {
    const auto network = make_network();
    std::map<std::string, std::vector<int64_t>> shapes;
    for (const auto& [name, parameter] : parameters_of(*network)) shapes.emplace(name, parameter.sizes().vec());
    FullyShardedDataParallel net(*network, world, {.units = kUnits});
    ASSERT_FALSE(net.parameters().empty());
    for (const auto& [name, part] : net.parameters()) {
      EXPECT_EQ(part.dim(), static_cast<int64_t>(shapes[name].size())) << name;
      EXPECT_EQ(whole_shape(part), shapes[name]) << name;
    }
    const auto [weights, biases] = split(net.parameters(), [](auto&, auto shape) { return shape.size() > 1; });
    for (const auto& [name, part] : weights) EXPECT_TRUE(name.ends_with("weight")) << name;
    for (const auto& [name, part] : biases) EXPECT_TRUE(name.ends_with("bias")) << name;
  });
}

// Oracle: one process. If the free clipping functions get a rank's parts, they use the norm of the whole gradient and
// clip equally on all ranks.
TEST(ShardedMisuse, ClippingPartsUsesTheNormOfTheWhole) {
  const auto plain = make_network();
  loss_of(plain->forward(Batch().x), Batch()).backward();
  for (const double norm_type : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
    const auto expected = grad_norm(parameters_of(*plain), norm_type).item<double>();
    const auto expected_of_parameters = norms(parameters_of(*plain), norm_type).parameters.item<double>();
    run_ranks(2, [&](World& world) {
      const auto network = make_network();
      FullyShardedDataParallel net(*network, world, {.units = kUnits});
      loss_of(net(Batch().x), Batch()).backward();
      const auto both = norms(net.parameters(), norm_type);
      EXPECT_NEAR(both.gradients.item<double>(), expected, 1e-5 * expected);
      EXPECT_NEAR(both.parameters.item<double>(), expected_of_parameters, 1e-5 * expected_of_parameters);
      EXPECT_NEAR(clip_grad_norm(net.parameters(), {.max_norm = 0.01, .norm_type = norm_type}).item<double>(), expected,
                  1e-5 * expected);
      EXPECT_NEAR(grad_norm(net.parameters(), norm_type).item<double>(), 0.01, 1e-5);
    });
  }
}

// All elements of a small network, or of some of its parameters, are on one rank. Functions that are collective over
// parts are nevertheless called by all ranks, with all parts and with some of them.
TEST(ShardedMisuse, ARankWithoutElementsTakesPartInNorms) {
  const auto x = torch::ones({4, 3});
  for (const double norm_type : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
    nn::Linear plain(3, 1);
    const auto values = copy_of_parameters(*plain);
    plain(x).square().sum().backward();
    run_ranks(2, [&](World& world) {
      nn::Linear model(3, 1);
      FullyShardedDataParallel net(model, world);
      load_module(values, *model);
      AdamW optimizer(net, {.lr = 0.1});
      ExponentialMovingAverage average(net);
      net(x).square().sum().backward();
      for (const auto& parts : {net.parameters(), NamedTensors{net.parameters().back()}}) {
        NamedTensors whole;
        for (const auto& [name, part] : parts) whole.emplace_back(name, plain->named_parameters()[name]);
        const auto ours = norms(parts, norm_type), theirs = norms(whole, norm_type);
        EXPECT_TRUE(torch::allclose(ours.gradients, theirs.gradients, 1e-5));
        EXPECT_TRUE(torch::allclose(ours.parameters, theirs.parameters, 1e-5));
        EXPECT_TRUE(torch::allclose(grad_norm(parts, norm_type), theirs.gradients, 1e-5));
      }
      clip_grad_norm(net.parameters(), {.max_norm = 0.01, .norm_type = norm_type});
      EXPECT_NEAR(grad_norm(net.parameters(), norm_type).item<double>(), 0.01, 1e-5);
      optimizer.step();
      average.update();
    });
  }
}

TEST(ShardedMisuse, AllRanksHaveTheSameNamesAndStates) {
  std::array<std::string, 2> names;
  run_ranks(2, [&](World& world) {
    nn::Linear model(3, 1);
    FullyShardedDataParallel net(model, world);
    AdamW optimizer(net);
    for (int i = 0; i < 2; ++i) {
      net(torch::ones({4, 3})).sum().backward();
      optimizer.step();
    }
    auto& of_rank = names[static_cast<size_t>(world.rank())];
    for (const auto& [name, state] : optimizer.state_dict()) {
      of_rank += name + (name.starts_with("step.") ? std::to_string(state.item<int>()) : "") + " ";
    }
  });
  EXPECT_EQ(names[0], names[1]);
  EXPECT_THAT(names[1], HasSubstr("exp_avg.bias exp_avg.weight"));
  EXPECT_THAT(names[1], HasSubstr("step.weight2"));
}

TEST(ShardedMisuse, AGradScalerAsksRanksWithoutElements) {
  run_ranks(2, [](World& world) {
    nn::Linear model(3, 1);
    FullyShardedDataParallel net(model, world);
    Sgd optimizer(net, {.lr = 0.1});
    GradScaler scaler({.init_scale = 16});
    const double factor = std::numeric_limits<double>::infinity();
    scaler.scale((net(torch::ones({4, 3})) * factor).sum()).backward();
    scaler.step(optimizer);
    scaler.update();
    EXPECT_EQ(scaler.scale_now(), 8);
  });
}

// An overflow in one rank's part makes all ranks skip the step. The scaler needs no option for this.
TEST(ShardedMisuse, AGradScalerKnowsFromThePartsThatRanksDiffer) {
  run_ranks(2, [](World& world) {
    const auto network = make_network();
    FullyShardedDataParallel net(*network, world, {.units = kUnits});
    Sgd optimizer(net, {.lr = 0.1});
    GradScaler scaler({.init_scale = 16});
    scaler.scale(loss_of(net(Batch().x), Batch())).backward();
    if (world.rank() == 1) net.parameters().back().second.mutable_grad().fill_(std::numeric_limits<double>::infinity());
    const auto before = net.parameters().back().second.clone();
    scaler.step(optimizer);
    scaler.update();
    EXPECT_EQ(scaler.scale_now(), 8);
    EXPECT_TRUE(torch::equal(net.parameters().back().second, before));
  });
}

}  // namespace
}  // namespace yoke::train

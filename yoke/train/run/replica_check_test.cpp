#include "yoke/train/run/replica_check.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <bit>
#include <filesystem>
#include <limits>
#include <mutex>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/dist/mesh.h"
#include "yoke/train/checkpoint/train_state.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/optim/ema.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/run/detail/divergence.h"
#include "yoke/train/run/detail/replica_hash.h"
#include "yoke/train/run/run.h"
#include "yoke/train/shard/fully_sharded_data_parallel.h"
#include "yoke/train/shard/sharded_optimizer.h"

namespace yoke::train::replicas {
namespace {

using detail::Divergence;
using detail::ReplicatedTensor;
using test::error_of;
using test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// ---- The hash ------------------------------------------------------------------------------------------------------

int64_t hash(const at::Tensor& tensor) {
  const auto value = detail::replica_hash(tensor).item<int64_t>();
  EXPECT_EQ(detail::replica_hash_by_operations(tensor).item<int64_t>(), value) << tensor.scalar_type();
  return value;
}

TEST(ReplicaHash, ChangesWithEachBitOfAnyElement) {
  const auto bytes = at::randint(0, 256, {16 * 5001}, at::kByte);  // over 4096 elements, and an incomplete row
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                           at::kChar, at::kByte, at::kComplexFloat, at::kFloat8_e4m3fn}) {
    for (const int64_t num_bytes : {16, 16 * 5001}) {
      const auto raw = bytes.narrow(0, 0, num_bytes).clone();
      const auto tensor = raw.view(dtype);
      const auto before = hash(tensor);
      auto* data = raw.mutable_data_ptr<uint8_t>();
      for (int64_t i = 0; i < (num_bytes == 16 ? 128 : 40); ++i) {
        const int64_t bit = num_bytes == 16 ? i : (i * 104'729) % (8 * num_bytes);
        data[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
        EXPECT_NE(hash(tensor), before) << dtype << " bit " << bit;
        data[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
      }
      EXPECT_EQ(hash(tensor), before) << dtype;
    }
  }
}

TEST(ReplicaHash, ChangesIfTwoElementsChangePlaces) {
  const auto tensor = at::randn({9000});
  tensor[17] = 1.0;
  tensor[8000] = -1.0;  // differ in one bit, the highest
  const auto before = hash(tensor);
  for (const auto& [a, b] : {std::pair{0, 1}, {17, 8000}, {4095, 4096}, {100, 100 + 4096}}) {
    const auto swapped = tensor.clone();
    swapped[a] = tensor[b];
    swapped[b] = tensor[a];
    EXPECT_NE(hash(swapped), before) << a << " and " << b;
  }
  EXPECT_NE(hash(tensor.flip(0)), before);
}

TEST(ReplicaHash, IsOfBitsAndNotOfValues) {
  EXPECT_NE(hash(at::full({3}, 0.0)), hash(at::full({3}, -0.0)));
  const auto nan_of = [](uint32_t payload) {
    return at::full({1}, int64_t{0x7fc00000 + payload}, at::kInt).view(at::kFloat);
  };
  EXPECT_NE(hash(nan_of(0)), hash(nan_of(1)));
  EXPECT_EQ(hash(nan_of(1)), hash(nan_of(1)));
}

TEST(ReplicaHash, TakesAnyLayoutAndSize) {
  EXPECT_EQ(hash(at::full({0}, 1.0)), 0);
  const auto scalar = at::full({}, 2.5);
  EXPECT_EQ(hash(scalar), hash(scalar.view({1})));
  const auto image = at::randn({2, 3, 5, 7}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_EQ(hash(image), hash(image.clone()));
  EXPECT_EQ(hash(image), hash(image.permute({0, 2, 3, 1}))) << "memory in its order, without a copy";
  const auto columns = at::randn({5, 8}).slice(1, 2, 4);
  EXPECT_EQ(hash(columns), hash(columns.contiguous()));
  const auto flags = at::full({10}, true, at::kBool);
  const auto before = hash(flags);
  flags[3] = false;
  EXPECT_NE(hash(flags), before);
}

// ---- Who differs ---------------------------------------------------------------------------------------------------

std::string described(const std::vector<ReplicatedTensor>& tensors,
                      const std::vector<std::vector<double>>& values = {{}, {}, {}, {}}) {
  const auto divergence = detail::find_divergence(tensors);
  return divergence ? detail::describe_divergence(*divergence, tensors, values, {0, 1, 2, 3}) : "equal";
}

TEST(Divergence, NamesTheMinority) {
  const ReplicatedTensor equal{"model/a", false, {{0, 7}, {1, 7}, {2, 7}, {3, 7}}};
  const ReplicatedTensor weight{"model/b", false, {{0, 7}, {1, 7}, {2, 8}, {3, 7}}};
  const ReplicatedTensor rate{"optimizer/lr", true, {{0, 1}, {1, 1}, {2, 2}, {3, 1}}};
  EXPECT_EQ(described({}), "equal");
  EXPECT_EQ(described({equal, equal}), "equal");
  EXPECT_EQ(described({equal, weight}), "rank 2 differs from ranks 0, 1, 3: 'model/b' has other bits");
  // A rate is the cause of other differences, so it is named first.
  EXPECT_EQ(described({weight, equal, rate}, {{0.5, 0.01}, {0.5, 0.01}, {0.5, 0.1}, {0.5, 0.01}}),
            "rank 2 differs from ranks 0, 1, 3: lr of group 1 of 'optimizer' is 0.1 on rank 2, and 0.01 on ranks 0, 1, "
            "3. Also different: 'model/b'");
  EXPECT_EQ(described({weight, weight, weight}, {{1}, {1}, {-0.0}, {1}}),
            "rank 2 differs from ranks 0, 1, 3: element 0 of 'model/b' is -0 on rank 2, and 1 on ranks 0, 1, 3. Also "
            "different: 'model/b' and 1 more");
  const ReplicatedTensor all{"model/c", false, {{0, 1}, {1, 1}, {2, 2}, {3, 3}}};
  EXPECT_EQ(described({all}), "ranks 2, 3 differ from ranks 0, 1: 'model/c' has other bits");
  const ReplicatedTensor tie{"model/d", false, {{1, 1}, {3, 2}}};
  EXPECT_EQ(
      described({tie}, {{}, {4}, {}, {5}}),
      "ranks 1, 3 differ, so nobody knows which is right: element 0 of 'model/d' is 4 on rank 1, and 5 on rank 3");
}

// ---- Trainings -----------------------------------------------------------------------------------------------------

struct Net : torch::nn::Module {
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor local;
  Net() {
    in = register_module("in", torch::nn::Linear(6, 16));
    norm = register_module("norm", torch::nn::BatchNorm1d(16));
    out = register_module("out", torch::nn::Linear(16, 3));
    local = register_parameter("local", at::full({3}, 0.0));
  }
  at::Tensor forward(const at::Tensor& x) { return out(norm(in(x)).relu()) + local; }
};

Net seeded() {
  return fakes::make_seeded(3, [] { return Net(); });
}

/// A batch of a rank and a step.
at::Tensor batch_of(int64_t rank, int64_t step) {
  return (at::arange(8 * 6).to(at::kFloat) + static_cast<float>(100 * rank + 7 * step)).sin().view({8, 6});
}

constexpr auto nothing = [](int64_t) {};

/// Steps of any network with any optimizer. After each step come `afterwards` and a comparison.
template <class NetworkOf, class Optimizer>
void train(dist::World& world, NetworkOf& net, Optimizer& optimizer, const TrainState& state,
           const std::function<void(int64_t step)>& before_step = nothing,
           const std::function<void(int64_t step)>& afterwards = nothing, Warn warn = warn_on_stderr) {
  ReplicaCheck check(state, std::move(warn));
  for (int64_t step = 1; step <= 6; ++step) {
    net(batch_of(world.rank(), step)).square().mean().backward();
    before_step(step);
    optimizer.step();
    optimizer.zero_grad();
    afterwards(step);
    check(step);
  }
}

const AdamWOptions kAdam{.lr = 0.01};

/// What rank 2 of three does wrong, and what all ranks are told.
template <class Sabotage>
std::string told(const Sabotage& sabotage) {
  std::mutex mutex;
  std::vector<std::string> messages;
  fakes::run_ranks(3, [&](dist::World& world) {
    auto model = seeded();
    DistributedDataParallel net(model, world);
    Sgd optimizer(net, {.lr = 0.01, .momentum = 0.9});
    TrainState state(world);
    state.add("model", net).add("optimizer", optimizer);
    const auto error = error_of([&] {
      train(
          world, net, optimizer, state,
          [&](int64_t step) {
            if (step == 4 && world.rank() == 2) sabotage(net, optimizer, /*is_before=*/true);
          },
          [&](int64_t step) {
            if (step == 4 && world.rank() == 2) sabotage(net, optimizer, /*is_before=*/false);
          });
    });
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    const std::lock_guard lock(mutex);
    messages.push_back(error.what());
  });
  EXPECT_THAT(messages, SizeIs(3));
  for (const auto& message : messages) EXPECT_EQ(message, messages.front());
  EXPECT_THAT(messages.front(),
              HasSubstr("after step 4, ranks no longer hold the same training (they were equal after step 3)"));
  return messages.front();
}

using Ddp = DistributedDataParallel<Net>;

TEST(ReplicaCheck, NamesARankWithOneOtherBitInOneWeight) {
  const auto message = told([](Ddp& net, Sgd&, bool is_before) {
    if (is_before) return;
    const at::NoGradGuard no_grad;
    auto* weight = net.model().out->weight.data_ptr<float>();
    weight[5] = std::nextafter(weight[5], 2.0F);
  });
  EXPECT_THAT(message, HasSubstr("rank 2 differs from ranks 0, 1: element 5 of 'model/out.weight' is "));
  EXPECT_THAT(message, Not(HasSubstr("Also different")));
  EXPECT_THAT(message, HasSubstr("go on from a checkpoint before"));
}

TEST(ReplicaCheck, NamesTheRateOfOneRank) {
  EXPECT_THAT(
      told([](Ddp&, Sgd& optimizer, bool is_before) {
        if (is_before) optimizer.set_lr(0.1);
      }),
      AllOf(HasSubstr("rank 2 differs from ranks 0, 1: lr of group 0 of 'optimizer' is 0.1 on rank 2, and 0.01 on "
                      "ranks 0, 1. Also different: 'model/local' and "),
            Not(HasSubstr("norm.running"))));
}

TEST(ReplicaCheck, NamesWhatOtherClippingChanges) {
  EXPECT_THAT(told([](Ddp& net, Sgd&, bool is_before) {
                if (is_before) net.clip_grad_norm(1e-3);
              }),
              HasSubstr("rank 2 differs from ranks 0, 1: element 0 of 'model/local' is "));
}

TEST(ReplicaCheck, NamesAnOptimizersState) {
  EXPECT_THAT(told([](Ddp&, Sgd& optimizer, bool is_before) {
                if (!is_before) optimizer.state_dict().at("momentum_buffer.in.weight")[3][1] += 1.0;
              }),
              HasSubstr("rank 2 differs from ranks 0, 1: 'optimizer/momentum_buffer.in.weight' has other bits."));
}

// Ranks of one DistributedDataParallel compute the same step from the same mean, whatever else they do on their own.
TEST(ReplicaCheck, AccusesNoReplicatedTraining) {
  for (const bool broadcasts : {true, false}) {
    fakes::run_ranks(3, [&](dist::World& world) {
      auto model = seeded();
      DistributedDataParallel net(model, world, {.broadcast_buffers = broadcasts, .ignored = {"local"}});
      AdamW optimizer(model, kAdam);  // steps 'local' too, by this rank's own gradients
      ExponentialMovingAverage averages(model, {.decay = 0.9});
      TrainState state(world);
      state.add("model", net).add("optimizer", optimizer).add("averages", averages).add_generators();
      train(
          world, net, optimizer, state, [&](int64_t) { net.clip_grad_norm(0.5); },
          [&](int64_t step) {
            if (world.rank() == 0) averages.update();  // rank 0 saves them
            const at::NoGradGuard no_grad;
            if (step % 2 == 0) net(batch_of(world.rank(), 50));  // changes the statistics of this rank
          });
      const auto local = world.all_gather(model.local.detach());
      EXPECT_FALSE(at::equal(local[0], local[1]));
    });
  }
}

// A parameter gets state with its first gradient, in step 4, which all ranks see then.
TEST(ReplicaCheck, TakesStateThatComesLater) {
  struct Late : torch::nn::Module {
    torch::nn::Embedding table{nullptr};
    torch::nn::Linear first{nullptr}, second{nullptr};
    bool uses_second = false;
    Late() {
      table = register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(6, 6).sparse(true)));
      first = register_module("first", torch::nn::Linear(6, 6));
      second = register_module("second", torch::nn::Linear(6, 6));
    }
    at::Tensor forward(const at::Tensor& x) {
      const auto y = first(x) + table(at::arange(8) % 3);
      return uses_second ? second(y) : y;
    }
  };
  for (const bool is_wrong : {false, true}) {
    fakes::run_ranks(3, [&](dist::World& world) {
      auto model = fakes::make_seeded(3, [] { return Late(); });
      DistributedDataParallel net(model, world, {.find_unused_parameters = true});
      Sgd optimizer(net, {.lr = 0.01});
      AdamW late(model.second, kAdam);
      TrainState state(world);
      state.add("model", net).add("optimizer", optimizer).add("late", late);
      const auto run = [&] {
        train(
            world, net, optimizer, state,
            [&](int64_t step) {
              if (step == 5) late.step();
              model.uses_second = step >= 3;
            },
            [&](int64_t step) {
              if (is_wrong && step == 6 && world.rank() == 1) late.state_dict().at("exp_avg.bias")[2] += 1.0;
            });
      };
      if (is_wrong) {
        EXPECT_THAT(message_of(run, ErrorCode::kFailedPrecondition),
                    HasSubstr("rank 1 differs from ranks 0, 2: element 2 of 'late/exp_avg.bias' is "));
      } else {
        EXPECT_NO_THROW(run());
      }
    });
  }
}

TEST(ReplicaCheck, AccusesNoShardedOptimizer) {
  for (const auto how : {GradientMean::kDone, GradientMean::kInStep}) {
    fakes::run_ranks(3, [&](dist::World& world) {
      auto model = seeded();
      Sharded<AdamW> optimizer(model, world, kAdam, {.gradients = how});
      DistributedDataParallel net(model, world, {.average_in_step = how == GradientMean::kInStep});
      TrainState state(world);
      state.add("model", net).add("optimizer", optimizer);
      EXPECT_NO_THROW(train(world, net, optimizer, state));
    });
  }
}

// Each rank has its own state, so only the parameters and the rates can be compared.
TEST(ReplicaCheck, NamesTheRateOfAShardedOptimizer) {
  for (const bool is_fully_sharded : {false, true}) {
    fakes::run_ranks(3, [&](dist::World& world) {
      auto model = seeded();
      TrainState state(world);
      const auto expect_named = [&](auto& net, auto& optimizer) {
        state.add("model", net).add("optimizer", optimizer);
        EXPECT_NO_THROW(train(world, net, optimizer, state));
        const auto wrong = [&] {
          train(world, net, optimizer, state, [&](int64_t) {
            if (world.rank() == 1) optimizer.set_lr(0.5);
          });
        };
        EXPECT_THAT(
            message_of(wrong, ErrorCode::kFailedPrecondition),
            HasSubstr("rank 1 differs from ranks 0, 2: lr of group 0 of 'optimizer' is 0.5 on rank 1, and 0.01 on "
                      "ranks 0, 2"));
      };
      if (is_fully_sharded) {
        FullyShardedDataParallel net(model, world);
        AdamW optimizer(net, kAdam);
        expect_named(net, optimizer);
      } else {
        Sharded<AdamW> optimizer(model, world, kAdam);
        DistributedDataParallel net(model, world);
        expect_named(net, optimizer);
      }
    });
  }
}

/// What all ranks are told if rank 1 of three does `wrong` before step 4 of a sharded training, which clips.
std::string told_sharded(bool is_fully_sharded, const std::function<void(const NamedTensors& gradients)>& wrong,
                         double limit = 0.5, bool steps = true) {
  std::string result;
  fakes::run_ranks(3, [&](dist::World& world) {
    auto model = seeded();
    TrainState state(world);
    const auto run = [&](auto& net, auto& optimizer) {
      state.add("model", net).add("optimizer", optimizer);
      ReplicaCheck check(state);
      for (int64_t step = 1; step <= 6; ++step) {
        const bool is_wrong = step == 4 && world.rank() == 1;
        net(batch_of(world.rank(), step)).square().mean().backward();
        if (is_wrong && wrong) wrong(net.parameters());
        net.clip_grad_norm(is_wrong ? limit : 0.5);
        if (!is_wrong || steps) optimizer.step();
        optimizer.zero_grad();
        if (step % 2 == 0) check(step);
      }
    };
    const auto error = error_of([&] {
      if (is_fully_sharded) {
        FullyShardedDataParallel net(model, world);
        Sgd optimizer(net, {.lr = 0.01});
        run(net, optimizer);
      } else {
        Sharded<AdamW> optimizer(model, world, kAdam);
        DistributedDataParallel net(model, world);
        run(net, optimizer);
      }
    });
    if (world.rank() == 2) result = error.what();
  });
  return result;
}

// Each rank has its own part of the state, or the parameters of all are made equal, so what differs is what ranks did.
TEST(ReplicaCheck, NamesWhatARankOfAShardedTrainingDoes) {
  const auto change = [](const NamedTensors& parameters) { parameters.back().second.mutable_grad().add_(0.5); };
  for (const bool is_fully_sharded : {false, true}) {
    EXPECT_THAT(told_sharded(is_fully_sharded, {}, 0.1),
                HasSubstr("after step 4, ranks no longer hold the same training (they were equal after step 2): rank 1 "
                          "differs from ranks 0, 2: the limit of the last clip_grad_norm is 0.1 on rank 1, and 0.5 on "
                          "ranks 0, 2"));
  }
  EXPECT_THAT(told_sharded(false, change),
              HasSubstr("rank 1 differs from ranks 0, 2: the norm that the last clip_grad_norm found is "));
  EXPECT_THAT(told_sharded(true, {}, 0.5, /*steps=*/false),
              HasSubstr("rank 1 differs from ranks 0, 2: the number of steps of an optimizer since the last comparison "
                        "is 1 on rank 1, and 2 on ranks 0, 2"));
}

TEST(ReplicaCheck, AccusesNoFullyShardedTraining) {
  fakes::run_ranks(3, [&](dist::World& world) {
    auto model = seeded();
    FullyShardedDataParallel net(model, world);
    const auto [matrices, others] = split(net.parameters(), [](auto&, auto shape) { return shape.size() > 1; });
    AdamW optimizer(matrices, kAdam);
    Sgd rest(others, {.lr = 0.01});
    TrainState state(world);
    state.add("model", net).add("optimizer", optimizer).add("rest", rest);
    EXPECT_NO_THROW(train(world, net, optimizer, state, [&](int64_t step) {
      net.clip_grad_norm(0.5);
      if (step % 2 == 0) rest.step();
    }));
  });
}

// Four ranks are two replicas of two parts: ranks 1 and 3 hold the same part.
TEST(ReplicaCheck, ComparesAPartWithItsReplicaAlone) {
  for (const bool is_wrong : {false, true}) {
    fakes::run_ranks(4, [&](dist::World& world) {
      dist::Mesh mesh(world, {{"replicate", 2}, {"shard", 2}});
      auto model = seeded();
      FullyShardedDataParallel net(model, mesh["shard"], {.replicas = &mesh["replicate"]});
      AdamW optimizer(net, kAdam);
      TrainState state(world);
      state.add("model", net).add("optimizer", optimizer);
      const auto run = [&] {
        train(world, net, optimizer, state, nothing, [&](int64_t step) {
          if (!is_wrong || step != 2 || world.rank() != 3) return;
          const at::NoGradGuard no_grad;
          for (auto& [name, part] : net.parameters()) {
            if (part.numel() > 0) part.view({-1})[0] += 1.0;
          }
        });
      };
      if (is_wrong) {
        EXPECT_THAT(
            message_of(run, ErrorCode::kFailedPrecondition),
            HasSubstr("after step 2, ranks no longer hold the same training (they were equal after step 1): ranks "
                      "1, 3 differ, so nobody knows which is right: "));
      } else {
        EXPECT_NO_THROW(run());
      }
    });
  }
}

// With other numbers of threads, even correct ranks round differently.
TEST(ReplicaCheck, WarnsOnceOfRanksThatRoundDifferently) {
  fakes::run_ranks(2, [&](dist::World& world) {
    at::get_num_threads();  // its first call in a thread takes the number that any thread has set last
    world.barrier();
    at::set_num_threads(world.rank() == 0 ? 1 : 2);
    auto model = seeded();
    DistributedDataParallel net(model, world);
    AdamW optimizer(net, kAdam);
    TrainState state(world);
    state.add("model", net).add("optimizer", optimizer);
    std::vector<std::string> warnings;
    EXPECT_NO_THROW(train(
        world, net, optimizer, state, nothing,
        [&](int64_t step) {
          const at::NoGradGuard no_grad;
          if (step >= 2 && world.rank() == 1) model.out->bias += 1.0;
        },
        [&](const std::string& text) { warnings.push_back(text); }));
    if (world.rank() == 1) {
      EXPECT_THAT(warnings, IsEmpty());
    } else {
      EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("after step 2"), HasSubstr(" with 1 threads here"),
                                              HasSubstr("with 2 threads elsewhere"))));
    }
  });
}

// ---- In a Run ------------------------------------------------------------------------------------------------------

struct Rows {
  int64_t size() const { return 24; }
  at::Tensor sample(int64_t i) const { return (at::arange(6).to(at::kFloat) + static_cast<float>(i)).sin(); }
};

/// Two ranks, or as many as there are, with 3 steps in an epoch. After step `wrong_at`, rank 1 has another weight.
void run_training(dist::World& world, const RunOptions& options, int64_t wrong_at, int64_t num_epochs) {
  Run run(world, options);
  auto model = seeded();
  DistributedDataParallel net(model, world);
  AdamW optimizer(net, kAdam);
  Loader loader(Rows(), world, {.batch_size = 8 / world.size(), .seed = 4});
  run.state().add("model", net).add("optimizer", optimizer);
  for (auto& epoch : run.epochs(loader, num_epochs)) {
    for (auto& batch : epoch) {
      net(batch).square().mean().backward();
      optimizer.step();
      optimizer.zero_grad();
      const at::NoGradGuard no_grad;
      if (run.step() + 1 == wrong_at && world.rank() == 1) model.out->weight[0][0] += 1e-3;
    }
  }
}

TEST(RunReplicas, ARunEndsBeforeItSavesTheStateOfRanksThatDiffer) {
  const test::TemporaryFolder temporary;
  const auto folder = std::filesystem::path(temporary.path("run"));
  for (const auto& [every, wrong_at, seen_at] : {std::tuple{2, 5, 6}, {100, 5, 6}, {1, 5, 5}}) {
    std::filesystem::remove_all(folder);
    fakes::run_ranks(2, [&, every = every, wrong_at = wrong_at, seen_at = seen_at](dist::World& world) {
      const RunOptions options{.folder = folder, .checkpoints = {.keep = 9}, .check_replicas_every = every};
      EXPECT_THAT(message_of([&] { run_training(world, options, wrong_at, 4); }, ErrorCode::kFailedPrecondition),
                  HasSubstr(fmt::format("after step {}, ranks no longer hold the same training", seen_at)));
    });
    EXPECT_THAT(CheckpointFolder(folder).steps(), ElementsAre(3));
    // The run goes on from the last good state, on other ranks too, and nobody is accused.
    fakes::run_ranks(every == 1 ? 4 : 2, [&](dist::World& world) {
      const RunOptions options{.folder = folder,
                               .resume = true,
                               .checkpoints = {.warn = [](const std::string&) {}},
                               .check_replicas_every = 1};
      EXPECT_NO_THROW(run_training(world, options, -1, 4));
    });
  }
}

TEST(RunReplicas, WithoutComparisonsARunTrustsItsProgram) {
  const test::TemporaryFolder temporary;
  fakes::run_ranks(2, [&](dist::World& world) {
    EXPECT_NO_THROW(run_training(world, {.folder = temporary.path("run"), .check_replicas_every = 0}, 2, 2));
  });
}

}  // namespace
}  // namespace yoke::train::replicas

// All ways to train on several ranks are equivalent. The tests compare each of them with one process, and resume each
// from the checkpoints of the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <mutex>
#include <optional>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/train/checkpoint/checkpoint_folder.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/optim/nadam.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/precision/grad_scaler.h"
#include "yoke/train/shard/network_test.h"
#include "yoke/train/shard/sharded_optimizer.h"

namespace yoke::train {
namespace {

using dist::World;
using fakes::run_ranks;
using testing::HasSubstr;

constexpr int kTrainingSteps = 20;

std::unique_ptr<Optimizer> make_adamw(NamedTensors parameters) {
  return std::make_unique<AdamW>(std::move(parameters), AdamWOptions{.lr = 0.01});
}
std::unique_ptr<Optimizer> make_sgd(NamedTensors parameters) {
  return std::make_unique<Sgd>(std::move(parameters), SgdOptions{.lr = 0.05, .momentum = 0.9});
}

// NAdam's state contains another number besides its step count.
std::unique_ptr<Optimizer> make_nadam(NamedTensors parameters) {
  return std::make_unique<NAdam>(std::move(parameters), NAdamOptions{.lr = 0.01});
}

enum class Way { kDdp, kZeroWithDdp, kZeroAlone, kFsdp };
constexpr std::array kSharded = {Way::kZeroWithDdp, Way::kZeroAlone, Way::kFsdp};

/// One rank's training, in one of the ways to train.
class Trainee {
 public:
  Trainee(Way way, World& world, const MakeOptimizer& make_optimizer)
      : world_(world), network_(make_network()), batch_(Batch().part(world.rank(), world.size())) {
    const auto parameters = network_->named_parameters().pairs();
    if (way == Way::kFsdp) {
      sharded_.emplace(*network_, world, FullyShardedOptions{.units = kUnits});
      plain_ = make_optimizer(sharded_->parameters());
      return;
    }
    if (way == Way::kDdp) {
      plain_ = make_optimizer(parameters);
    } else {
      const bool alone = way == Way::kZeroAlone;
      zero_.emplace(parameters, world, make_optimizer,
                    ShardedOptimizerOptions{.gradients = alone ? GradientMean::kInStep : GradientMean::kDone,
                                            .bucket_bytes = 1500});
      if (alone) return;
    }
    parallel_.emplace(*network_, world);
  }

  void step() {
    zero_ ? zero_->zero_grad() : plain_->zero_grad();
    const auto output = parallel_  ? (*parallel_)(batch_.x)
                        : sharded_ ? (*sharded_)(batch_.x)
                                   : network_->forward(batch_.x);
    loss_of(output, batch_).backward();
    zero_ ? zero_->step() : plain_->step();
  }

  void set_lr(double lr) { zero_ ? zero_->set_lr(lr) : plain_->set_lr(lr); }

  TrainState state() {
    TrainState state(world_);
    state.add("model", *network_);
    zero_ ? state.add("optimizer", *zero_) : state.add("optimizer", *plain_);
    return state;
  }

  /// The whole saved state, on rank 0.
  TensorMap whole_state() {
    NamedTensors tensors = named_tensors(*network_);
    for (auto& named : tensors) named.first = "model/" + named.first;
    for (const auto& [name, tensor] : zero_ ? zero_->state_dict() : plain_->state_dict()) {
      tensors.emplace_back("optimizer/" + name, tensor);
    }
    const auto whole = gather_tensors(world_, tensors);
    return {whole.begin(), whole.end()};
  }

  /// The whole model, on rank 0.
  TensorMap whole() {
    auto whole = whole_tensors(world_, *network_);
    for (auto& [name, tensor] : whole) tensor = tensor.clone();
    return whole;
  }

 private:
  World& world_;
  std::shared_ptr<Network> network_;
  Batch batch_;
  std::optional<FullyShardedDataParallel<Network>> sharded_;
  std::optional<ShardedOptimizer> zero_;
  std::optional<DistributedDataParallel<Network>> parallel_;
  std::unique_ptr<Optimizer> plain_;
};

TensorMap train_on(int64_t num_ranks, Way way, const MakeOptimizer& make_optimizer) {
  TensorMap result;
  run_ranks(num_ranks, [&](World& world) {
    Trainee trainee(way, world, make_optimizer);
    for (int i = 0; i < kTrainingSteps; ++i) trainee.step();
    auto whole = trainee.whole();
    if (world.rank() == 0) result = std::move(whole);
  });
  return result;
}

struct OneProcess {
  explicit OneProcess(const MakeOptimizer& make_optimizer)
      : optimizer(make_optimizer(network->named_parameters().pairs())) {}
  void step() {
    optimizer->zero_grad();
    loss_of(network->forward(batch.x), batch).backward();
    optimizer->step();
  }
  std::shared_ptr<Network> network = make_network();
  Batch batch;
  std::unique_ptr<Optimizer> optimizer;
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && torch::equal(a, b);
}

TEST(ShardedTraining, EveryWayOnAnyNumberOfRanksGivesOneProcessesParameters) {
  for (const auto& [name_of_optimizer, make_optimizer] : std::vector<std::pair<const char*, MakeOptimizer>>{
           {"AdamW", make_adamw}, {"SGD", make_sgd}, {"NAdam", make_nadam}}) {
    OneProcess one(make_optimizer);
    for (int i = 0; i < kTrainingSteps; ++i) one.step();
    const auto expected = copy_of_parameters(*one.network);
    for (const int64_t num_ranks : {1, 2, 4}) {
      TensorMap ddp;
      for (const auto way : {Way::kDdp, Way::kZeroWithDdp, Way::kZeroAlone, Way::kFsdp}) {
        const auto what = fmt::format("way {} on {} ranks, {}", static_cast<int>(way), num_ranks, name_of_optimizer);
        const auto parameters = train_on(num_ranks, way, make_optimizer);
        if (way == Way::kDdp) ddp = parameters;
        ASSERT_EQ(parameters.size(), expected.size()) << what;
        for (const auto& [name, tensor] : parameters) {
          EXPECT_TRUE(torch::allclose(tensor, expected.at(name), 1e-3, 1e-4)) << what << ": " << name;
          // A sum over two ranks has only one possible order, so sharding does not change any bit.
          if (num_ranks <= 2) {
            EXPECT_TRUE(same_bits(tensor, ddp.at(name))) << what << ": " << name;
          }
        }
      }
    }
  }
}

TEST(ShardedTraining, AnyCheckpointResumesOnAnyNumberOfRanks) {
  for (const auto way : kSharded) {
    for (const int64_t before : {1, 2, 4}) {
      const test::TemporaryFolder folder;
      TensorMap saved, finished;  // whole tensors, gathered on rank 0
      run_ranks(before, [&](World& world) {
        Trainee trainee(way, world, make_nadam);
        for (int i = 0; i < 3; ++i) trainee.step();
        trainee.set_lr(0.002);  // by hand, and not as other trainees are made
        CheckpointFolder(folder.path()).save(3, trainee.state(), {{"epoch", "7"}});
        auto whole = trainee.whole_state();
        for (auto& [name, tensor] : whole) tensor = tensor.clone();
        if (world.rank() == 0) saved = std::move(whole);
        for (int i = 0; i < 3; ++i) trainee.step();
        whole = trainee.whole_state();
        if (world.rank() == 0) finished = std::move(whole);
      });
      ASSERT_EQ(saved.size(), 16u * 5 + 1);  // parameters, two moments, mu_product, steps; and the rate

      for (const int64_t after : {1, 2, 4}) {
        for (const auto other : kSharded) {
          if (other != way && after != 2) continue;  // other ways are tested with one number of ranks
          run_ranks(after, [&](World& world) {
            Trainee trainee(other, world, make_nadam);
            auto state = trainee.state();
            const auto checkpoint = CheckpointFolder(folder.path()).load_latest(state);
            ASSERT_TRUE(checkpoint);
            EXPECT_EQ(checkpoint->step, 3);
            EXPECT_EQ(checkpoint->num_shards, before == 1 ? 0 : before) << "one rank's whole state is one file";
            EXPECT_EQ(checkpoint->metadata.at("epoch"), "7");
            const auto loaded = trainee.whole_state();
            if (world.rank() == 0) {
              ASSERT_EQ(loaded.size(), saved.size());
              for (const auto& [name, tensor] : saved) EXPECT_TRUE(same_bits(loaded.at(name), tensor)) << name;
            }
            for (int i = 0; i < 3; ++i) trainee.step();
            const auto resumed = trainee.whole_state();
            if (world.rank() != 0) return;
            for (const auto& [name, tensor] : finished) {
              EXPECT_TRUE(torch::allclose(resumed.at(name), tensor, 1e-4, 1e-6)) << name;
              // The order in which four ranks' gradients are summed depends on the position in a bucket.
              // DistributedDataParallel uses different buckets in its first step and in later ones.
              if (before == after && (way != Way::kZeroWithDdp || after <= 2)) {
                EXPECT_TRUE(same_bits(resumed.at(name), tensor)) << name;
              }
            }
          });
        }
      }

      // One process can load the state too: from the files, or from the tensors gathered on rank 0.
      const auto source = read_checkpoint(CheckpointFolder(folder.path()).path_of(3)).source;
      for (const auto& from : {source, source_of(saved)}) {
        OneProcess one(make_nadam);
        load_module(part_of(from, "model"), *one.network);
        one.optimizer->load_state_dict(read_whole(part_of(from, "optimizer")));
        for (int i = 0; i < 3; ++i) one.step();
        for (const auto& [name, tensor] : copy_of_parameters(*one.network)) {
          EXPECT_TRUE(torch::allclose(tensor, finished.at("model/" + name), 1e-4, 1e-6)) << name;
        }
      }
    }
  }
}

struct HalfWeight : torch::nn::Module {
  HalfWeight() { weight = register_parameter("weight", torch::zeros({64}, at::kHalf)); }
  at::Tensor forward(const at::Tensor& x) { return weight * x; }
  at::Tensor weight;
};

// The sum of these gradients over ranks overflows half, but their mean does not.
TEST(ShardedTraining, HalfGradientsHaveAMeanToo) {
  run_ranks(4, [](World& world) {
    const auto x = torch::full({64}, 30000, at::kHalf);
    HalfWeight network, other;
    FullyShardedDataParallel sharded(network, world);
    sharded(x).sum().backward();
    for (const auto& [name, shard] : sharded.parameters()) {
      EXPECT_TRUE(torch::equal(shard.grad(), x.narrow(0, 0, shard.numel())));
    }
    ShardedOptimizer zero(other.named_parameters().pairs(), world, make_sgd, {.gradients = GradientMean::kInStep});
    other.forward(x).sum().backward();
    zero.step(0.5);
    EXPECT_EQ(other.weight[0].item<float>(), -15000);
    EXPECT_EQ(other.weight[63].item<float>(), -15000);
    world.all_reduce(x, dist::ReduceOp::kMean);
    EXPECT_EQ(x[0].item<float>(), 30000);
  });
}

TEST(ShardedTraining, AStateThatIsGatheredLoadsIntoAnOptimizerThatIsNotSharded) {
  run_ranks(2, [](World& world) {
    auto network = make_network();
    ShardedOptimizer zero(network->named_parameters().pairs(), world, make_sgd, {.gradients = GradientMean::kInStep});
    const auto batch = Batch().part(world.rank(), world.size());
    for (int i = 0; i < 2; ++i) {
      zero.zero_grad();
      loss_of(network->forward(batch.x), batch).backward();
      zero.step(0.1);
    }
    const auto parts = zero.state_dict();
    const auto gathered = gather_tensors(world, {parts.begin(), parts.end()});
    const TensorMap state(gathered.begin(), gathered.end());
    if (world.rank() != 0) {
      EXPECT_TRUE(state.empty());
      return;
    }
    EXPECT_EQ(state.at("momentum_buffer.block1.wide.weight").sizes(), (std::vector<int64_t>{30, 10}));
    make_sgd(network->named_parameters().pairs())->load_state_dict(state);
  });
}

TEST(ShardedTraining, StateIsDividedBetweenRanks) {
  for (const int64_t size : {1, 2, 4}) {
    run_ranks(size, [&](World& world) {
      auto network = make_network(0, 40);
      int64_t all = 0;
      for (const auto& parameter : network->parameters()) all += parameter.numel();
      ShardedOptimizer zero(network->named_parameters().pairs(), world, make_adamw,
                            {.gradients = GradientMean::kInStep});
      loss_of(network->forward(Batch().x), Batch()).backward();
      zero.step();
      int64_t own = 0;
      for (const auto& [name, tensor] : zero.state_dict()) own += tensor.numel();
      EXPECT_NEAR(static_cast<double>(own), 2.0 * static_cast<double>(all / size), 0.03 * static_cast<double>(all));
    });
  }
}

TEST(ShardedTraining, ZeroClipsTheNormOfTheWholeGradient) {
  OneProcess one(make_sgd);
  loss_of(one.network->forward(one.batch.x), one.batch).backward();
  double square = 0;
  for (const auto& parameter : one.network->parameters()) square += parameter.grad().square().sum().item<double>();
  run_ranks(2, [&](World& world) {
    auto network = make_network();
    ShardedOptimizer zero(network->named_parameters().pairs(), world, make_sgd, {.gradients = GradientMean::kInStep});
    const auto batch = Batch().part(world.rank(), world.size());
    loss_of(network->forward(batch.x), batch).backward();
    EXPECT_NEAR(zero.clip_grad_norm(0.01).item<double>(), std::sqrt(square), 1e-5);
    EXPECT_NEAR(zero.clip_grad_norm(0.01).item<double>(), 0.01, 1e-6);
    const auto before = copy_of_parameters(*network);
    zero.step(1.0);
    double change = 0;
    for (const auto& [name, tensor] : copy_of_parameters(*network)) {
      change += (tensor - before.at(name)).square().sum().item<double>();
    }
    EXPECT_NEAR(std::sqrt(change), 0.01, 1e-5);
  });
}

TEST(ShardedTraining, AnOverflowOnOneRankSkipsTheStepOnAll) {
  run_ranks(2, [](World& world) {
    auto network = make_network();
    ShardedOptimizer zero(network->named_parameters().pairs(), world, make_sgd, {.gradients = GradientMean::kInStep});
    const auto before = copy_of_parameters(*network);
    for (const int64_t overflowing : {1, 9}) {
      zero.zero_grad();
      loss_of(network->forward(Batch().x), Batch()).backward();
      const auto found = torch::full({1}, world.rank() == overflowing ? 1.0f : 0.0f);
      zero.step(GradScale{torch::ones({1}), found});
      EXPECT_EQ(found.item<float>(), overflowing == 1 ? 1 : 0);
      EXPECT_EQ(torch::equal(network->first->weight, before.at("first.weight")), overflowing == 1);
    }
  });
}

// Oracle: one process on the whole batch, without a scaler. The second step overflows on rank 1 and is skipped. The
// last steps clip.
TEST(ShardedTraining, ZeroStepsUnderAGradScaler) {
  constexpr int kOverflow = 1, kFirstClipped = 2, kLast = 4;
  auto alone = make_network();
  const auto sgd = make_sgd(alone->named_parameters().pairs());
  for (int i = 0; i < kLast; ++i) {
    sgd->zero_grad();
    loss_of(alone->forward(Batch().x), Batch()).backward();
    if (i >= kFirstClipped) clip_grad_norm(sgd->parameters(), {.max_norm = 0.1});
    if (i != kOverflow) sgd->step();
  }
  for (const auto mean : {GradientMean::kDone, GradientMean::kInStep}) {
    run_ranks(2, [&](World& world) {
      auto network = make_network();
      const auto parameters = network->named_parameters().pairs();
      ShardedOptimizer zero(parameters, world, make_sgd, {.gradients = mean});
      std::optional<DistributedDataParallel<Network>> parallel;
      if (mean == GradientMean::kDone) parallel.emplace(*network, world);
      GradScaler scaler({.init_scale = 16});
      const auto batch = Batch().part(world.rank(), world.size());
      for (int i = 0; i < kLast; ++i) {
        zero.zero_grad();
        const double factor = i == kOverflow && world.rank() == 1 ? std::numeric_limits<double>::infinity() : 1;
        const auto output = parallel ? (*parallel)(batch.x) : network->forward(batch.x);
        scaler.scale(loss_of(output, batch) * factor).backward();
        if (i >= kFirstClipped) {
          scaler.unscale(zero);
          mean == GradientMean::kDone ? clip_grad_norm(parameters, {.max_norm = 0.1}) : zero.clip_grad_norm(0.1);
        }
        scaler.step(zero);
        scaler.update();
        EXPECT_EQ(scaler.scale_now(), i < kOverflow ? 16 : 8);
      }
      for (const auto& [name, tensor] : copy_of_parameters(*alone)) {
        EXPECT_TRUE(torch::allclose(network->named_parameters()[name], tensor, 1e-5, 1e-6)) << name;
      }
    });
  }
}

// Rank 0 has both elements. Rank 1 takes part in the decision to skip a step, in norms, and has the same scale as rank
// 0.
TEST(ShardedTraining, ARankWithoutElementsTakesPart) {
  run_ranks(2, [](World& world) {
    const auto weight = torch::ones({2}).requires_grad_();
    ShardedOptimizer zero({{"weight", weight}}, world, make_sgd, {.gradients = GradientMean::kInStep});
    ASSERT_EQ(zero.local()->parameters().size(), 1u);
    EXPECT_EQ(zero.local()->parameters()[0].second.numel(), world.rank() == 0 ? 2 : 0);
    EXPECT_FLOAT_EQ(norms(zero.local()->parameters()).parameters.item<float>(), std::sqrt(2.0F));
    GradScaler scaler({.init_scale = 16});
    for (const double factor : {1.0, std::numeric_limits<double>::infinity()}) {
      zero.zero_grad();
      scaler.scale((weight * (world.rank() == 1 ? factor : 1)).sum()).backward();
      scaler.step(zero);
      scaler.update();
    }
    EXPECT_EQ(scaler.scale_now(), 8);
    EXPECT_TRUE(torch::allclose(weight, torch::full({2}, 0.95)));
  });
}

TEST(ShardedTraining, ZeroRefusesWhatCannotWork) {
  World world(RankEnv{}, {.device = c10::Device(c10::kCPU)});
  auto network = make_network();
  const auto weight = network->first->weight;
  EXPECT_THROW(ShardedOptimizer({{"a", torch::ones({2})}}, world, make_sgd), Error) << "nothing to train";
  const NamedTensors alike{{"a", network->first->bias}, {"a", network->last->bias}};
  EXPECT_THROW(ShardedOptimizer(alike, world,
                                [](NamedTensors slices) {
                                  slices.pop_back();  // then the program would not see that both have one name
                                  return make_sgd(std::move(slices));
                                }),
               Error)
      << "one would be missing in checkpoints";
  ShardedOptimizer zero({{"a", weight}}, world, make_sgd);
  EXPECT_THROW(zero.clip_grad_norm(1), Error) << "those of the parameters are whole";
  weight.mutable_grad() = torch::ones({10, 6}).to_sparse();
  EXPECT_THROW(zero.step(), Error);
  world.shutdown();
}

}  // namespace
}  // namespace yoke::train

// Tests sharding within a group and replication between groups: four ranks are two replicas of two shards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <map>
#include <mutex>

#include "fakes/run_ranks.h"
#include "yoke/base/error.h"
#include "yoke/dist/mesh.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/shard/fully_sharded_data_parallel.h"
#include "yoke/train/shard/network_test.h"

namespace yoke::train {
namespace {

using dist::World;
using fakes::run_ranks;
using testing::HasSubstr;

constexpr int kHybridSteps = 10;
constexpr double kMaxNorm = 0.05;  // below the norm of every step's gradient, so that each step clips

/// The norms before clipping and the parameters after all steps, on rank 0.
struct Trained {
  std::vector<double> norms;
  TensorMap parameters;
};

template <class Net>
std::vector<double> train(Net& net, int64_t rank, int64_t num_ranks) {
  const auto batch = Batch().part(rank, num_ranks);
  AdamW optimizer(net, {.lr = 0.01});
  std::vector<double> norms;
  for (int i = 0; i < kHybridSteps; ++i) {
    optimizer.zero_grad();
    loss_of(net(batch.x), batch).backward();
    norms.push_back(net.clip_grad_norm(kMaxNorm).template item<double>());
    optimizer.step();
  }
  return norms;
}

Trained train_replicated() {
  Trained result;
  run_ranks(4, [&](World& world) {
    auto network = make_network();
    DistributedDataParallel net(*network, world);
    auto norms = train(net, world.rank(), world.size());
    if (world.rank() == 0) result = {std::move(norms), copy_of_parameters(*network)};
  });
  return result;
}

/// Returns each rank's result. `world` gathers the parts of both replicas, `shard` only those of this rank's replica.
std::vector<Trained> train_hybrid(const FullyShardedOptions& given) {
  std::vector<Trained> results(4);
  run_ranks(4, [&](World& world) {
    dist::Mesh mesh(world, {{"replicate", 2}, {"shard", 2}});
    auto network = make_network(static_cast<uint64_t>(world.rank()));  // rank 0's weights are used
    auto options = given;
    options.replicas = &mesh["replicate"];
    FullyShardedDataParallel net(*network, mesh["shard"], options);
    auto& result = results[static_cast<size_t>(world.rank())];
    result.norms = train(net, world.rank(), world.size());
    result.parameters = whole_tensors(world, *network);
    for (const auto& [name, part] : net.parameters()) {  // parameters have the same bits in both replicas
      if (part.numel() == 0) continue;
      const auto all = mesh["replicate"].all_gather(part.detach());
      EXPECT_TRUE(torch::equal(all[0], all[1])) << name;
    }
  });
  return results;
}

TEST(HybridSharding, EqualsDistributedDataParallel) {
  const auto plain = train_replicated();
  for (const auto& norm : plain.norms) EXPECT_GT(norm, kMaxNorm);
  for (const bool reshard : {true, false}) {
    const auto hybrid = train_hybrid({.units = kUnits, .reshard_after_forward = reshard});
    for (const auto& of_rank : hybrid) {
      for (size_t step = 0; step < plain.norms.size(); ++step) {
        EXPECT_NEAR(of_rank.norms[step], plain.norms[step], 1e-4 * plain.norms[step]) << "step " << step;
      }
    }
    ASSERT_EQ(hybrid[0].parameters.size(), plain.parameters.size());
    for (const auto& [name, tensor] : plain.parameters) {
      EXPECT_TRUE(torch::allclose(hybrid[0].parameters.at(name), tensor, 1e-4, 1e-5))
          << name << " differs by " << (hybrid[0].parameters.at(name) - tensor).abs().max().item<double>();
    }
  }
}

TEST(HybridSharding, ARankHoldsItsShareOfAReplica) {
  run_ranks(4, [](World& world) {
    dist::Mesh mesh(world, {{"replicate", 2}, {"shard", 2}});
    auto network = std::make_shared<Network>(64);
    int64_t whole = 0, own = 0;
    for (const auto& parameter : network->parameters()) whole += parameter.numel();
    FullyShardedDataParallel net(*network, mesh["shard"], {.units = kUnits, .replicas = &mesh["replicate"]});
    loss_of(net(Batch().x), Batch()).backward();
    for (const auto& [name, part] : net.parameters()) {
      own += part.numel();
      EXPECT_EQ(part.grad().numel(), part.numel()) << name;
    }
    // Ranks have equally many elements, except for gaps of alignment of at most 16 elements per tensor.
    EXPECT_NEAR(static_cast<double>(own), static_cast<double>(whole) / 2, 16.0 * 14);
    const auto of_replica = torch::full({1}, own);
    mesh["shard"].all_reduce(of_replica);
    EXPECT_EQ(of_replica.item<int64_t>(), whole) << "each element once in a replica";
    const auto of_all = torch::full({1}, own);
    world.all_reduce(of_all);
    EXPECT_EQ(of_all.item<int64_t>(), 2 * whole);
  });
}

TEST(HybridSharding, TheNormOfPartsIsThatOfOneReplica) {
  run_ranks(4, [](World& world) {
    dist::Mesh mesh(world, {{"replicate", 2}, {"shard", 2}});
    auto network = make_network();
    FullyShardedDataParallel net(*network, mesh["shard"], {.units = kUnits, .replicas = &mesh["replicate"]});
    const Batch batch;  // the same batch on all ranks, so the gradient equals that of one process
    loss_of(net(batch.x), batch).backward();
    auto alone = make_network();
    loss_of(alone->forward(batch.x), batch).backward();
    const auto expected = grad_norm(alone->named_parameters().pairs()).item<double>();
    EXPECT_NEAR(grad_norm(net.parameters()).item<double>(), expected, 1e-5 * expected);
    EXPECT_NEAR(net.clip_grad_norm(1e9).item<double>(), expected, 1e-5 * expected);
  });
}

TEST(HybridSharding, AllRanksRefuseModelsThatDiffer) {
  // The models differ within one replica, or between the two replicas.
  for (const bool within : {true, false}) {
    run_ranks(4, [&](World& world) {
      dist::Mesh mesh(world, {{"replicate", 2}, {"shard", 2}});
      const bool is_other = within ? world.rank() == 3 : world.rank() >= 2;
      auto network = std::make_shared<Network>(is_other ? 12 : 10);
      try {
        const FullyShardedDataParallel net(*network, mesh["shard"], {.replicas = &mesh["replicate"]});
        ADD_FAILURE() << "on rank " << world.rank();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        EXPECT_THAT(error.what(), HasSubstr("'first.weight Float [12, 6] trained'"));
      }
    });
  }
}

// In evaluation, replicas must be equal. So all ranks must have the running statistics of the first rank.
TEST(HybridSharding, BuffersAreTheFirstRanksOnAll) {
  run_ranks(4, [](World& world) {
    dist::Mesh mesh(world, {{"replicate", 2}, {"shard", 2}});
    torch::nn::BatchNorm1d norm(3);
    norm->running_mean.fill_(static_cast<float>(world.rank() + 5));
    FullyShardedDataParallel net(norm, mesh["shard"], {.replicas = &mesh["replicate"]});
    EXPECT_TRUE(torch::equal(norm->running_mean, torch::full({3}, 5.0F)));
    norm->running_mean.fill_(static_cast<float>(world.rank() + 9));
    net.sync_buffers();
    EXPECT_TRUE(torch::equal(norm->running_mean, torch::full({3}, 9.0F)));
    net(torch::full({4, 3}, static_cast<float>(10 * world.rank()))).sum().backward();
    EXPECT_TRUE(torch::allclose(norm->running_mean, torch::full({3}, 8.1F)));
  });
}

}  // namespace
}  // namespace yoke::train

// A DistributedDataParallel over a part of the ranks, in the state of all of them.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/train/checkpoint/checkpoint_folder.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/parallel/distributed_data_parallel.h"

namespace yoke::train {
namespace {

using dist::World;
using fakes::run_ranks;
using testing::AllOf;
using testing::HasSubstr;

/// A network of each half of four ranks, after a step in which the halves differ if `mark` does.
struct Half {
  dist::Group group;
  torch::nn::Linear net{2, 1};
  std::optional<AdamW> optimizer;
  std::optional<DistributedDataParallel<torch::nn::Linear>> ddp;

  Half(World& world, double mark) : group(world.split(world.rank() / 2)) {
    const at::NoGradGuard no_grad;
    net->weight.fill_(1);
    net->bias.fill_(0);
    optimizer.emplace(*net);
    ddp.emplace(net, group);
    const c10::AutoGradMode with_grad(true);
    (*ddp)(at::full({4, 2}, mark)).sum().backward();
    optimizer->step();
  }
  double weight() const { return net->weight[0][0].item<double>(); }
};

std::string refusal(const std::filesystem::path& folder, const TrainState& state) {
  try {
    CheckpointFolder(folder).save(1, state);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    return error.what();
  }
  return "saved";
}

TEST(GroupValues, OneNameForTheNetworksOfSeveralGroupsIsRefused) {
  const test::TemporaryFolder folder;
  run_ranks(4, [&](World& world) {
    Half half(world, world.rank() < 2 ? 1 : -1);
    TrainState state(world);
    state.add("model", *half.ddp);
    EXPECT_THAT(refusal(folder.path(), state),
                AllOf(HasSubstr("saving step 1 in "), HasSubstr("'model/"),
                      HasSubstr("has other values on rank 2 than on rank 0"), HasSubstr("only ranks 0 and 1 keep it "),
                      HasSubstr("names of their own")));
    TrainState with_optimizer(world);
    with_optimizer.add("model" + std::to_string(world.rank() / 2), *half.ddp).add("optimizer", *half.optimizer);
    EXPECT_THAT(refusal(folder.path(), with_optimizer), HasSubstr("'optimizer/"));
    EXPECT_TRUE(CheckpointFolder(folder.path()).steps().empty());
  });
}

TEST(GroupValues, NamesOfTheirOwnGiveEachGroupItsOwn) {
  const test::TemporaryFolder folder;
  run_ranks(4, [&](World& world) {
    const auto add_to = [&](TrainState& state, Half& half) {
      const auto mark = std::to_string(world.rank() / 2);
      state.add("model" + mark, *half.ddp).add("optimizer" + mark, *half.optimizer);
    };
    Half half(world, world.rank() < 2 ? 1 : -1), other(world, world.rank() < 2 ? -1 : 1);
    TrainState state(world), resumed(world);
    add_to(state, half);
    add_to(resumed, other);
    EXPECT_EQ(refusal(folder.path(), state), "saved");
    ASSERT_NE(other.weight(), half.weight());
    ASSERT_TRUE(CheckpointFolder(folder.path()).load_latest(resumed));
    EXPECT_EQ(other.weight(), half.weight()) << world.rank();
  });
}

// As a program does that takes the mean over all groups before it saves.
TEST(GroupValues, OneNameIsRightWhileTheGroupsAreEqual) {
  const test::TemporaryFolder folder;
  run_ranks(4, [&](World& world) {
    Half half(world, 1);
    TrainState state(world);
    state.add("model", *half.ddp).add("optimizer", *half.optimizer);
    EXPECT_EQ(refusal(folder.path(), state), "saved");
  });
}

}  // namespace
}  // namespace yoke::train

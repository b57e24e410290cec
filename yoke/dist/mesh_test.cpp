#include "yoke/dist/mesh.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakes/run_ranks.h"
#include "yoke/base/error.h"

namespace yoke::dist {
namespace {

using fakes::run_ranks;
using testing::ElementsAre;

TEST(Mesh, CountsAlongTheLastAxisFirst) {
  const std::vector<Axis> axes = {{"a", 2}, {"b", 3}, {"c", 2}};
  EXPECT_THAT(coordinates_of(0, axes), ElementsAre(0, 0, 0));
  EXPECT_THAT(coordinates_of(1, axes), ElementsAre(0, 0, 1));
  EXPECT_THAT(coordinates_of(2, axes), ElementsAre(0, 1, 0));
  EXPECT_THAT(coordinates_of(11, axes), ElementsAre(1, 2, 1));
}

int64_t sum_of_ranks(Group& group, const World& world) {
  const auto sum = at::full({1}, world.rank());
  group.all_reduce(sum);
  return sum.item<int64_t>();
}

TEST(Mesh, GivesEachRankItsGroupAlongAnAxis) {
  run_ranks(4, [](World& world) {
    Mesh mesh(world, {{"replicate", 2}, {"shard", 2}});
    EXPECT_THAT(mesh["shard"].ranks(), world.rank() < 2 ? ElementsAre(0, 1) : ElementsAre(2, 3));
    EXPECT_THAT(mesh["replicate"].ranks(), world.rank() % 2 == 0 ? ElementsAre(0, 2) : ElementsAre(1, 3));
    EXPECT_EQ(mesh["replicate"].rank(), world.rank() / 2);
    EXPECT_EQ(mesh["shard"].rank(), world.rank() % 2);
    EXPECT_EQ(sum_of_ranks(mesh["shard"], world), world.rank() < 2 ? 1 : 5);
    EXPECT_EQ(sum_of_ranks(mesh["replicate"], world), world.rank() % 2 == 0 ? 2 : 4);
    EXPECT_THROW(mesh["pipeline"], Error);
  });
}

TEST(Mesh, HasAsManyAxesAsAreNamed) {
  run_ranks(4, [](World& world) {
    Mesh mesh(world, {{"pipeline", 2}, {"replicate", 1}, {"shard", 2}});
    EXPECT_THAT(mesh["pipeline"].ranks(), world.rank() % 2 == 0 ? ElementsAre(0, 2) : ElementsAre(1, 3));
    EXPECT_THAT(mesh["replicate"].ranks(), ElementsAre(world.rank()));
    // A mesh within a group divides the group's own ranks.
    Mesh within(mesh["pipeline"], {{"replicate", 2}});
    EXPECT_THAT(within["replicate"].ranks(), testing::ElementsAreArray(mesh["pipeline"].ranks()));
  });
}

TEST(Mesh, RefusesSizesThatDoNotFitAndAxesThatDiffer) {
  run_ranks(4, [](World& world) {
    const auto message = [&](std::vector<Axis> axes) -> std::string {
      try {
        const Mesh mesh(world, std::move(axes));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        return error.what();
      }
      return "";
    };
    EXPECT_EQ(message({{"replicate", 2}, {"shard", 3}}),
              "a mesh of replicate 2 x shard 3 does not fit a group of 4 ranks: the product of its sizes must be the "
              "number of ranks");
    EXPECT_EQ(message({{"shard", 0}}), "a mesh of 4 ranks: its axis 'shard' has size 0");
    EXPECT_EQ(message({{"shard", 2}, {"shard", 2}}), "a mesh has two axes named 'shard'");
    EXPECT_EQ(message({{"shard", world.rank() == 2 ? 2 : 4}, {"replicate", world.rank() == 2 ? 2 : 1}}),
              "the mesh differs between ranks: it is shard 2 x replicate 2 on rank 2, and shard 4 x replicate 1 on "
              "rank 0");
  });
}

}  // namespace
}  // namespace yoke::dist

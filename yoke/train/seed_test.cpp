#include "yoke/train/seed.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "yoke/base/error.h"

namespace yoke::train {
namespace {

// Global flags that seed() may change only if `deterministic` is set. The tests restore them.
struct Flags {
  bool algorithms = at::globalContext().deterministicAlgorithms();
  bool cudnn = at::globalContext().deterministicCuDNN();
  bool benchmark = at::globalContext().benchmarkCuDNN();
  bool operator==(const Flags&) const = default;
};

TEST(Seed, RankZeroIsPyTorchsOwnStream) {
  seed({.seed = 42});
  // torch.manual_seed(42); torch.rand(4).tolist()
  const float expected[] = {0.88226926326751709f, 0.91500395536422729f, 0.38286375999450684f, 0.95930564403533936f};
  const auto drawn = at::rand({4});
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(drawn[i].item<float>(), expected[i]) << i;
}

TEST(Seed, EachRankHasAStreamOfItsOwn) {
  std::set<uint64_t> streams;
  for (uint64_t value : {0, 1, 2, 42}) {
    for (int64_t rank = 0; rank < 64; ++rank) streams.insert(rank_seed(value, rank));
  }
  EXPECT_EQ(streams.size(), 4u * 64u);
  EXPECT_EQ(rank_seed(7, 0), 7u);
  EXPECT_EQ(rank_seed(0, 1), 0xe220a8397b1dcdafu);  // SplitMix64's published first output for 0

  seed({.seed = 42, .rank = 1});
  const auto first = at::rand({8});
  seed({.seed = 42, .rank = 1});
  EXPECT_TRUE(at::equal(at::rand({8}), first));
  seed({.seed = 42, .rank = 0});
  EXPECT_FALSE(at::equal(at::rand({8}), first));
  EXPECT_THROW(seed({.rank = -1}), Error);
}

TEST(Seed, DeterministicSetsTheFlagsAndNothingElse) {
  const Flags before;
  seed({.seed = 1});
  EXPECT_EQ(Flags(), before);

  unsetenv("CUBLAS_WORKSPACE_CONFIG");
  const int num_threads = at::get_num_threads();
  auto& context = at::globalContext();
  context.setBenchmarkCuDNN(true);
  seed({.seed = 1, .deterministic = true});
  EXPECT_TRUE(context.deterministicAlgorithms());
  EXPECT_FALSE(context.deterministicAlgorithmsWarnOnly());
  EXPECT_TRUE(context.deterministicCuDNN());
  EXPECT_FALSE(context.benchmarkCuDNN());
  EXPECT_EQ(at::get_num_threads(), num_threads);
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");

  setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);  // the user's setting is kept
  seed({.seed = 1, .deterministic = true});
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":16:8");

  unsetenv("CUBLAS_WORKSPACE_CONFIG");
  context.setDeterministicAlgorithms(before.algorithms, false);
  context.setDeterministicCuDNN(before.cudnn);
  context.setBenchmarkCuDNN(before.benchmark);
}

}  // namespace
}  // namespace yoke::train

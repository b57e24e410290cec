#include "yoke/train/data/sampler.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/support/paths.h"
#include "yoke/base/error.h"
#include "yoke/train/data/detail/permutation.h"

namespace yoke::train {
namespace {

DistributedSamplerOptions options_of(const nlohmann::json& columns, int64_t rank) {
  return {.num_samples = columns[0],
          .num_ranks = columns[1],
          .rank = rank,
          .shuffle = columns[2],
          .seed = columns[4],
          .drop_last = columns[3]};
}

// Oracle: lists from PyTorch's sampler (tests/reference/record_sampler.py).
TEST(DistributedSampler, EqualsPyTorchElementForElement) {
  const auto recorded = nlohmann::json::parse(std::ifstream(test::reference("sampler.json")));
  ASSERT_GT(recorded["cases"].size(), 100u);
  for (const auto& entry : recorded["cases"]) {
    const auto& columns = entry["case"];
    ASSERT_EQ(entry["ranks"].size(), columns[1].get<size_t>());
    for (size_t rank = 0; rank < entry["ranks"].size(); ++rank) {
      const DistributedSampler sampler(options_of(columns, static_cast<int64_t>(rank)));
      const auto expected = entry["ranks"][rank].get<std::vector<int64_t>>();
      ASSERT_EQ(sampler.indices(columns[5]), expected) << columns << " rank " << rank;
      ASSERT_EQ(sampler.size(), static_cast<int64_t>(expected.size())) << columns;
    }
  }
  for (const auto& entry : recorded["large"]) {
    const auto& columns = entry["case"];
    for (size_t rank = 0; rank < entry["crc32"].size(); ++rank) {
      const auto indices = DistributedSampler(options_of(columns, static_cast<int64_t>(rank))).indices(columns[5]);
      const auto checksum = crc32(0, reinterpret_cast<const Bytef*>(indices.data()),
                                  static_cast<uInt>(indices.size() * sizeof indices[0]));
      EXPECT_EQ(checksum, entry["crc32"][rank].get<uint64_t>()) << columns << " rank " << rank;
    }
  }
}

TEST(DistributedSampler, AnyEpochCanBeAskedForAgain) {
  const DistributedSampler sampler({.num_samples = 50, .num_ranks = 2, .rank = 1, .seed = 3});
  const auto third = sampler.indices(3);
  EXPECT_NE(sampler.indices(0), third);
  EXPECT_EQ(sampler.indices(3), third);
}

TEST(DistributedSampler, OfNothingIsEmpty) {
  const DistributedSampler sampler({.num_samples = 0, .num_ranks = 3, .rank = 2});
  EXPECT_EQ(sampler.size(), 0);
  EXPECT_TRUE(sampler.indices(0).empty());
}

TEST(DistributedSampler, RefusesARankThatIsNone) {
  EXPECT_THROW(DistributedSampler({.num_samples = 4, .num_ranks = 2, .rank = 2}), Error);
  EXPECT_THROW(DistributedSampler({.num_samples = 4, .num_ranks = 2, .rank = -1}), Error);
  EXPECT_THROW(DistributedSampler({.num_samples = 4, .num_ranks = 0}), Error);
  EXPECT_THROW(DistributedSampler({.num_samples = -1}), Error);
}

TEST(DistributedSampler, ExactGivesEverySampleOnce) {
  for (const int64_t num_samples : {0, 1, 7, 8}) {
    std::vector<int64_t> all;
    for (int64_t rank = 0; rank < 4; ++rank) {
      const DistributedSampler sampler({.num_samples = num_samples, .num_ranks = 4, .rank = rank, .exact = true});
      const auto own = sampler.indices(0);
      EXPECT_EQ(static_cast<int64_t>(own.size()), sampler.size());
      all.insert(all.end(), own.begin(), own.end());
    }
    std::sort(all.begin(), all.end());
    std::vector<int64_t> expected(static_cast<size_t>(num_samples));
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected);
  }
  EXPECT_THROW(DistributedSampler({.num_samples = 4, .drop_last = true, .exact = true}), Error);
}

std::vector<int64_t> all_of(const Sampler& sampler, int64_t epoch) {
  const auto order = sampler.order(epoch);
  std::vector<int64_t> result;
  for (int64_t i = 0; i < sampler.num_positions; ++i) result.push_back(order(i));
  return result;
}

void expect_each_once(std::vector<int64_t> samples, int64_t count) {
  std::sort(samples.begin(), samples.end());
  std::vector<int64_t> expected(static_cast<size_t>(count));
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(samples, expected);
}

// Sizes around powers of two and four, for which a Feistel network is most likely wrong.
TEST(Permutation, HasEachNumberOnceAndDependsOnSeedAndEpoch) {
  for (const int64_t n : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4096, 4097}) {
    const auto numbers = [n](uint64_t seed, int64_t epoch) {
      const detail::Permutation permutation(n, seed, epoch);
      std::vector<int64_t> result;
      for (int64_t i = 0; i < n; ++i) result.push_back(permutation(i));
      return result;
    };
    expect_each_once(numbers(1, 0), n);
    if (n < 100) continue;
    EXPECT_NE(numbers(1, 0), numbers(1, 1));
    EXPECT_NE(numbers(1, 0), numbers(2, 0));
  }
}

// Over many seeds, each number appears at each place equally often: chi-squared with 24 * 24 cells stays below its
// 99.99 % quantile.
TEST(Permutation, IsEven) {
  constexpr int64_t kSize = 24, kSeeds = 24000;
  std::vector<int64_t> counts(kSize * kSize);
  for (int64_t seed = 0; seed < kSeeds; ++seed) {
    const detail::Permutation permutation(kSize, static_cast<uint64_t>(seed), 0);
    for (int64_t i = 0; i < kSize; ++i) ++counts[static_cast<size_t>(i * kSize + permutation(i))];
  }
  double chi_squared = 0;
  for (const int64_t count : counts) {
    const double difference = static_cast<double>(count - kSeeds / kSize);
    chi_squared += difference * difference / (static_cast<double>(kSeeds) / kSize);
  }
  EXPECT_LT(chi_squared, 23 * 23 + 4 * std::sqrt(2.0 * 23 * 23));
}

// An epoch of 100 million samples begins at once, at any position.
TEST(Shuffled, NeedsNoMemoryForManySamples) {
  const auto sampler = shuffled(int64_t{100} << 20, 7);
  const auto order = sampler.order(3), again = sampler.order(3);
  std::vector<int64_t> some;
  for (int64_t i = 0; i < 100000; ++i) some.push_back(order(int64_t{50} << 20 | i));
  for (size_t i = 0; i < some.size(); ++i) ASSERT_EQ(again(int64_t{50} << 20 | static_cast<int64_t>(i)), some[i]);
  std::sort(some.begin(), some.end());
  EXPECT_EQ(std::unique(some.begin(), some.end()), some.end());
  EXPECT_GE(some.front(), 0);
  EXPECT_LT(some.back(), sampler.num_positions);
  EXPECT_NEAR(static_cast<double>(some[some.size() / 2]), static_cast<double>(int64_t{50} << 20), 1e6);
}

TEST(Shuffled, OfAPartHasThatPartAlone) {
  auto samples = all_of(shuffled({4, 8, 15, 16, 23, 42}, 1), 2);
  EXPECT_NE(samples, (std::vector<int64_t>{4, 8, 15, 16, 23, 42}));
  std::sort(samples.begin(), samples.end());
  EXPECT_EQ(samples, (std::vector<int64_t>{4, 8, 15, 16, 23, 42}));
}

TEST(Weighted, DrawsByWeight) {
  const auto samples = all_of(weighted({1, 0, 3, 0}, 40000, 5), 0);
  EXPECT_EQ(std::count(samples.begin(), samples.end(), 1) + std::count(samples.begin(), samples.end(), 3), 0);
  EXPECT_NEAR(static_cast<double>(std::count(samples.begin(), samples.end(), 2)), 30000, 400);  // 4.6 sigma
  EXPECT_THROW(weighted({1, -1}, 4, 5), Error);
  EXPECT_THROW(weighted({0, 0}, 4, 5), Error);
}

TEST(Balanced, GivesEachClassEquallyOften) {
  const std::vector<int64_t> classes = {0, 0, 0, 0, 0, 0, 0, 2, 2, 5};
  const auto samples = all_of(balanced(classes, 5), 1);
  ASSERT_EQ(samples.size(), 21u);
  std::vector<int64_t> counts(10);
  for (const int64_t sample : samples) ++counts[static_cast<size_t>(sample)];
  EXPECT_EQ(counts, (std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1, counts[7], 7 - counts[7], 7}));
  EXPECT_TRUE(counts[7] == 3 || counts[7] == 4);
}

TEST(ByLength, PutsSimilarLengthsIntoOneBatch) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 1003; ++i) lengths.push_back(i * 7919 % 1003);
  const auto sampler = by_length(lengths, {.batch_size = 10, .num_batches = 20, .seed = 3});
  const auto samples = all_of(sampler, 0);
  expect_each_once(samples, 1003);
  EXPECT_NE(all_of(sampler, 1), samples);
  int64_t padded = 0;
  for (size_t first = 0; first < 1000; first += 10) {
    int64_t longest = 0, sum = 0;
    for (size_t i = first; i < first + 10; ++i) {
      const int64_t length = lengths[static_cast<size_t>(samples[i])];
      longest = std::max(longest, length);
      sum += length;
    }
    padded += longest * 10 - sum;
  }
  EXPECT_LT(padded, 1003 * 501 / 20);  // in a random order nearly half of all values are padding
}

TEST(ShuffledShards, StaysWithinShardsAndWindows) {
  const std::vector<int64_t> sizes = {10, 0, 25, 5, 60};
  const auto samples = all_of(shuffled_shards(sizes, 10, 3), 4);
  expect_each_once(samples, 100);
  const auto shard_of = [](int64_t sample) { return sample < 10 ? 0 : sample < 35 ? 2 : sample < 40 ? 3 : 4; };
  for (size_t first = 0; first < 100; first += 10) {
    std::vector<int> shards;
    for (size_t i = first; i < first + 10; ++i) shards.push_back(shard_of(samples[i]));
    std::sort(shards.begin(), shards.end());
    EXPECT_LE(std::unique(shards.begin(), shards.end()) - shards.begin(), 3);
  }
}

// Oracle: torch.utils.data.random_split with torch.Generator().manual_seed(seed).
TEST(RandomSplit, EqualsPyTorch) {
  using Parts = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(random_split(10, {0.7, 0.3}, 42), (Parts{{2, 6, 1, 8, 4, 5, 0}, {9, 3, 7}}));
  EXPECT_EQ(random_split(11, {0.5, 0.25, 0.25}, 3), (Parts{{9, 0, 3, 6, 4, 5}, {2, 8, 1}, {10, 7}}));
  EXPECT_THROW(random_split(10, {0.7, 0.2}, 42), Error);
  EXPECT_THROW(random_split(10, {1.7, -0.7}, 42), Error);
}

TEST(StratifiedSplit, KeepsTheShareOfEachClass) {
  std::vector<int64_t> classes(100, 0);
  std::fill_n(classes.begin(), 20, 1);
  const auto parts = stratified_split(classes, {0.75, 0.25}, 1);
  ASSERT_EQ(parts.size(), 2u);
  const auto count = [&](const std::vector<int64_t>& part) {
    return std::count_if(part.begin(), part.end(), [](int64_t sample) { return sample < 20; });
  };
  EXPECT_EQ(count(parts[0]), 15);
  EXPECT_EQ(count(parts[1]), 5);
  auto all = parts[0];
  all.insert(all.end(), parts[1].begin(), parts[1].end());
  expect_each_once(all, 100);
}

}  // namespace
}  // namespace yoke::train

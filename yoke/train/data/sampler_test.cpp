#include "yoke/train/data/sampler.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/support/paths.h"
#include "yoke/base/error.h"

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

}  // namespace
}  // namespace yoke::train

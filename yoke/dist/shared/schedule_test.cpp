#include "yoke/dist/shared/schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace yoke::dist::shared {
namespace {

const std::vector<int64_t> kSizes = {1, 2, 3, 15, 16, 17, 63, 64, 65, 100, 255, 256, 257, 1000, 1023, 1024, 5000};

// Every element is reduced once, by one rank, in parts that fit in a lane.
TEST(SharedSchedule, PartsOfAllRoundsAreAllElementsOnce) {
  for (const int64_t num_ranks : {1, 2, 3, 4, 5, 8}) {
    for (const int64_t element_bytes : {1, 2, 4, 8}) {
      for (const int64_t size : kSizes) {
        const ReduceSchedule schedule{size, element_bytes, false, {.num_ranks = num_ranks, .chunk_bytes = 1024}};
        std::vector<int> count(static_cast<size_t>(size));
        for (int64_t round = 0; round < schedule.num_rounds(); ++round) {
          for (int64_t rank = 0; rank < num_ranks; ++rank) {
            const auto part = schedule.part(round, rank);
            ASSERT_LE(part.size, schedule.lane_elements());
            for (int64_t i = part.begin; i < part.begin + part.size; ++i) ++count.at(static_cast<size_t>(i));
          }
        }
        for (const int one : count)
          ASSERT_EQ(one, 1) << size << " elements of " << element_bytes << " on " << num_ranks;
      }
    }
  }
}

TEST(SharedSchedule, ARankThatGetsABlockReducesThatBlock) {
  for (const int64_t num_ranks : {2, 3, 5}) {
    for (const int64_t block : kSizes) {
      const ReduceSchedule schedule{block * num_ranks, 4, true, {.num_ranks = num_ranks, .chunk_bytes = 1024}};
      for (int64_t rank = 0; rank < num_ranks; ++rank) {
        int64_t next = rank * block;
        for (int64_t round = 0; round < schedule.num_rounds(); ++round) {
          const auto part = schedule.part(round, rank);
          ASSERT_EQ(part.begin, next);
          ASSERT_LE(part.size, schedule.lane_elements());
          next += part.size;
        }
        ASSERT_EQ(next, (rank + 1) * block);
      }
    }
  }
}

TEST(SharedSchedule, TheLastRoundIsDividedToo) {
  const ReduceSchedule schedule{64, 4, false, {.num_ranks = 2, .chunk_bytes = 1024}};
  EXPECT_EQ(schedule.num_rounds(), 1);
  EXPECT_EQ(schedule.part(0, 0), (Range{0, 32}));
  EXPECT_EQ(schedule.part(0, 1), (Range{32, 32}));
}

TEST(SharedSchedule, NothingNeedsNoRound) {
  EXPECT_EQ((ReduceSchedule{0, 4, false, {.num_ranks = 2}}.num_rounds()), 0);
  EXPECT_EQ((ReduceSchedule{0, 4, true, {.num_ranks = 2}}.num_rounds()), 0);
  EXPECT_EQ(num_rounds_of(0, 64), 0);
  EXPECT_EQ(num_rounds_of(65, 64), 2);
  EXPECT_EQ(part_of(65, 64, 1), (Range{64, 1}));
  EXPECT_EQ(part_of(65, 64, 2), (Range{65, 0}));
}

TEST(SharedSchedule, LanesOfManyRanksAreNotEmpty) {
  for (const int64_t num_ranks : {1, 16, 17, 64, 256}) {
    const auto layout = layout_of(num_ranks);
    EXPECT_GE(lane_bytes(layout, num_ranks), 16 << 10);
    EXPECT_LE(num_ranks * 8, layout.slot_bytes) << "the sizes of all pieces fit in a slot";
  }
}

}  // namespace
}  // namespace yoke::dist::shared

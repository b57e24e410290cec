#include "yoke/profile/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::profile {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ProfileHello rank_of_two(int64_t rank, int64_t attempt = 0, int64_t num_steps = 0) {
  return {.rank = rank,
          .world_size = 2,
          .local_world_size = 2,
          .pid = 100 + rank,
          .attempt = attempt,
          .num_steps = num_steps};
}

ProfileNews written(int64_t rank) { return {.trace = "/r/rank" + std::to_string(rank) + ".json"}; }

TEST(Recording, AStartedProgramIsCompleteWhenEachOfItsRanksHasATrace) {
  Recording recording({.folder = "/r", .wait = 5, .warmup = 2, .active = 6});
  EXPECT_FALSE(recording.is_complete());
  const auto answers = recording.on_hello(1, rank_of_two(1));
  ASSERT_EQ(answers.size(), 1u) << "it does not wait for the other rank";
  EXPECT_EQ(answers[0].connection, 1);
  EXPECT_EQ(answers[0].request, (ProfileRequest{.folder = "/r", .first = 7, .warmup = 2, .active = 6}));
  recording.on_news(1, written(1));
  recording.on_closed(1);
  EXPECT_FALSE(recording.is_complete()) << "rank 0 has not said hello";
  recording.on_hello(2, rank_of_two(0));
  recording.on_news(2, {.num_steps = 9});
  EXPECT_THAT(recording.progress(), HasSubstr("rank 0 has ended 9 of the 13"));
  recording.on_news(2, written(0));
  EXPECT_TRUE(recording.is_complete());
  EXPECT_THAT(recording.traces(), ElementsAre("/r/rank0.json", "/r/rank1.json"));
  EXPECT_FALSE(recording.on_hello(3, rank_of_two(0))[0].request) << "a later program";
}

TEST(Recording, ASecondProgramOfTheSameRankIsRefusedWhileTheFirstOneLives) {
  Recording recording({.folder = "/r"});
  recording.on_hello(1, rank_of_two(0));
  EXPECT_FALSE(recording.on_hello(2, rank_of_two(0))[0].request);
  recording.on_closed(1);
  EXPECT_TRUE(recording.on_hello(3, rank_of_two(0))[0].request) << "the first one ended without a trace";
  EXPECT_FALSE(recording.failure());
}

TEST(Recording, ARestartedJobBeginsAgain) {
  Recording recording({.folder = "/r"});
  recording.on_hello(1, rank_of_two(0));
  recording.on_hello(2, rank_of_two(1));
  recording.on_news(1, written(0));
  recording.on_closed(1);
  recording.on_closed(2);
  EXPECT_TRUE(recording.on_hello(3, rank_of_two(1, 1))[0].request);
  recording.on_news(3, written(1));
  EXPECT_FALSE(recording.is_complete()) << "the trace of the first attempt does not count";
  EXPECT_FALSE(recording.on_hello(4, rank_of_two(0, 0))[0].request) << "a rank of the first attempt";
  recording.on_hello(5, rank_of_two(0, 1));
  recording.on_news(5, written(0));
  EXPECT_TRUE(recording.is_complete());
}

TEST(Recording, RunningRanksAreGivenTheSameSteps) {
  Recording recording({.folder = "/r", .wait = 0, .warmup = 1, .active = 4, .num_asked = 2});
  EXPECT_TRUE(recording.on_hello(1, rank_of_two(0, 0, 17)).empty());
  const auto answers = recording.on_hello(2, rank_of_two(1, 0, 18));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].request->first, 19);
  EXPECT_EQ(answers[1].request, answers[0].request);
  recording.on_news(1, written(0));
  recording.on_closed(1);
  EXPECT_FALSE(recording.is_complete());
  EXPECT_FALSE(recording.failure());
  recording.on_closed(2);
  EXPECT_THAT(recording.failure().value_or(""), HasSubstr("rank 1 (process 101) ended before"));
}

TEST(Recording, TheFirstFailureIsKept) {
  Recording recording({.folder = "/r"});
  recording.on_hello(1, rank_of_two(0));
  recording.on_hello(2, rank_of_two(1));
  recording.on_news(2, {.failure = "the disk is full"});
  recording.on_news(1, {.failure = "another"});
  EXPECT_EQ(recording.failure(), "rank 1: the disk is full");
}

}  // namespace
}  // namespace yoke::profile

#include "yoke/profile/joint_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::profile {
namespace {

using testing::ElementsAre;

constexpr size_t kAllReduce = 1, kBroadcast = 2;

RankAccount rank_with(std::vector<Step> steps) {
  RankAccount account;
  account.steps = std::move(steps);
  return account;
}

TEST(JointSteps, ChargeTheWaitingToTheRankThatComesLast) {
  // Rank 1 enters the collective 70 ns after rank 0 and 40 ns after rank 2. The collective itself takes 10 ns.
  const std::vector<RankAccount> ranks = {
      rank_with({{.number = 5, .length_ns = 200, .collectives = {{kAllReduce, 80, 80}}}}),
      rank_with({{.number = 5, .length_ns = 210, .collectives = {{kAllReduce, 10, 10}}}}),
      rank_with({{.number = 5, .length_ns = 190, .collectives = {{kAllReduce, 50, 50}}}})};
  const auto steps = join_steps(ranks);
  ASSERT_EQ(steps.size(), 1);
  EXPECT_EQ(steps[0].communication_ns, 10);
  EXPECT_THAT(steps[0].waiting_ns, ElementsAre(70, 0, 40));
  EXPECT_THAT(steps[0].late_ns, ElementsAre(0, 70, 0));
  EXPECT_EQ(steps[0].length_ns(), 210);
}

TEST(JointSteps, WaitingThatComputingHidesDoesNotCount) {
  const std::vector<RankAccount> ranks = {rank_with({{.collectives = {{kAllReduce, 80, 15}}}}),
                                          rank_with({{.collectives = {{kAllReduce, 10, 10}}}})};
  const auto steps = join_steps(ranks);
  EXPECT_EQ(steps[0].communication_ns, 10);
  EXPECT_THAT(steps[0].waiting_ns, ElementsAre(5, 0));
}

TEST(JointSteps, MatchCollectivesByNameAndOrder) {
  const std::vector<RankAccount> ranks = {
      rank_with({{.collectives = {{kAllReduce, 30, 30}, {kBroadcast, 5, 5}, {kAllReduce, 20, 20}}}}),
      rank_with({{.collectives = {{kBroadcast, 9, 9}, {kAllReduce, 20, 20}, {kAllReduce, 50, 50}}}})};
  const auto steps = join_steps(ranks);
  EXPECT_EQ(steps[0].communication_ns, 20 + 5 + 20);
  EXPECT_THAT(steps[0].waiting_ns, ElementsAre(10, 4 + 30));
  EXPECT_THAT(steps[0].late_ns, ElementsAre(4 + 30, 10));
}

TEST(JointSteps, CompareSumsIfRanksHaveDifferentNumbersOfACollective) {
  const std::vector<RankAccount> ranks = {
      rank_with({{.collectives = {{kAllReduce, 10, 10}, {kAllReduce, 10, 10}, {kAllReduce, 10, 10}}}}),
      rank_with({{.collectives = {{kAllReduce, 12, 12}}}})};
  const auto steps = join_steps(ranks);
  EXPECT_EQ(steps[0].communication_ns, 12);
  EXPECT_THAT(steps[0].waiting_ns, ElementsAre(18, 0));
}

TEST(JointSteps, AreThoseOfAllRanks) {
  const std::vector<RankAccount> ranks = {rank_with({{.number = 1}, {.number = 2}, {.number = 3}}),
                                          rank_with({{.number = 2}, {.number = 3}, {.number = 4}})};
  const auto steps = join_steps(ranks);
  ASSERT_EQ(steps.size(), 2);
  EXPECT_EQ(steps[0].ranks[1]->number, 2);
}

}  // namespace
}  // namespace yoke::profile

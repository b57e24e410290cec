#include "yoke/launch/node/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::launch {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using Verdict = Membership::Verdict;

constexpr Membership::Time kOpened{seconds(1000)};

Membership of(int64_t min, int64_t max) {
  return {{.min_nodes = min, .max_nodes = max, .join_timeout = seconds(600), .last_call = seconds(30)}, kOpened};
}

TEST(Membership, StartsWhenAllAreThere) {
  auto nodes = of(2, 2);
  nodes.add(0, std::nullopt, kOpened);
  EXPECT_EQ(nodes.judge(kOpened), Verdict::kWait);
  nodes.add(1, std::nullopt, kOpened + seconds(5));
  EXPECT_EQ(nodes.judge(kOpened + seconds(5)), Verdict::kStart);
  EXPECT_THAT(nodes.choose(), ElementsAre(0, 1));
}

TEST(Membership, TooFewAreNotWaitedForWithoutEnd) {
  auto nodes = of(2, 2);
  nodes.add(0, std::nullopt, kOpened);
  EXPECT_EQ(nodes.judge(kOpened + seconds(599)), Verdict::kWait);
  EXPECT_EQ(nodes.judge(kOpened + seconds(600)), Verdict::kTooFew);
}

TEST(Membership, EnoughWaitForTheLastCall) {
  auto nodes = of(2, 4);
  nodes.add(0, std::nullopt, kOpened);
  nodes.add(1, std::nullopt, kOpened + seconds(10));
  EXPECT_EQ(nodes.judge(kOpened + seconds(39)), Verdict::kWait);
  EXPECT_EQ(nodes.judge(kOpened + seconds(40)), Verdict::kStart);
  nodes.remove(1);  // the other nodes are waiting for more nodes (last_call)
  EXPECT_EQ(nodes.judge(kOpened + seconds(40)), Verdict::kWait);
  nodes.add(2, std::nullopt, kOpened + seconds(50));
  EXPECT_EQ(nodes.judge(kOpened + seconds(79)), Verdict::kWait);
  EXPECT_EQ(nodes.judge(kOpened + seconds(80)), Verdict::kStart);
}

TEST(Membership, ARestartOfEnoughDoesNotWait) {
  auto nodes = of(2, 4);
  for (const int id : {0, 1, 2}) nodes.add(id, std::nullopt, kOpened);
  nodes.remove(2);
  nodes.wait_for_next(kOpened + seconds(100), true);
  EXPECT_EQ(nodes.judge(kOpened + seconds(100)), Verdict::kStart);
  nodes.remove(1);
  nodes.wait_for_next(kOpened + seconds(200), true);
  EXPECT_EQ(nodes.judge(kOpened + seconds(200)), Verdict::kWait);
  EXPECT_EQ(nodes.judge(kOpened + seconds(800)), Verdict::kTooFew);
}

TEST(Membership, RanksThatWereAskedForAreGiven) {
  auto nodes = of(4, 4);
  nodes.add(10, 3, kOpened);
  nodes.add(11, std::nullopt, kOpened);
  nodes.add(12, 0, kOpened);
  nodes.add(13, std::nullopt, kOpened);
  EXPECT_THAT(nodes.choose(), ElementsAre(12, 11, 13, 10));
}

TEST(Membership, RanksHaveNoGaps) {
  auto nodes = of(1, 4);
  for (const int rank : {0, 1, 2, 3}) nodes.add(rank, rank, kOpened);
  nodes.remove(1);
  EXPECT_THAT(nodes.choose(), ElementsAre(0, 3, 2)) << "3 exists no more, and fills the gap";
}

TEST(Membership, OneTooManyOrWithATakenRankWaits) {
  auto nodes = of(2, 2);
  nodes.add(0, 0, kOpened);
  nodes.add(1, 0, kOpened);
  EXPECT_EQ(nodes.judge(kOpened), Verdict::kWait);
  nodes.add(2, 1, kOpened);
  nodes.add(3, 1, kOpened);
  EXPECT_EQ(nodes.judge(kOpened), Verdict::kStart);
  EXPECT_THAT(nodes.choose(), ElementsAre(0, 2));
  nodes.remove(0);
  EXPECT_THAT(nodes.choose(), ElementsAre(1, 2)) << "it takes the place";
}

TEST(Membership, AConflictIsFoundOnceTheHolderOfTheRankIsHeardOf) {
  auto nodes = of(3, 3);
  nodes.add(0, 0, kOpened);
  nodes.add(1, 1, kOpened);
  nodes.add(2, 1, kOpened + seconds(5));
  nodes.add(3, std::nullopt, kOpened + seconds(5));
  struct Case {
    std::string name;
    seconds heard;
    bool is_conflict;
  };
  for (const auto& [name, heard, is_conflict] : {Case{"long before", seconds(1), false},
                                                 {"at the same moment", seconds(5), false},
                                                 {"after it came", seconds(6), true}}) {
    const auto conflicts = nodes.find_conflicts([heard = heard](int) { return kOpened + heard; });
    ASSERT_EQ(conflicts.size(), is_conflict ? 1U : 0U) << name;
    if (!is_conflict) continue;
    EXPECT_EQ(conflicts[0].id, 2);
    EXPECT_EQ(conflicts[0].holder, 1);
    EXPECT_EQ(conflicts[0].rank, 1);
  }
  nodes.remove(1);  // the holder was lost, and the second node takes its place
  EXPECT_TRUE(nodes.find_conflicts([](int) { return kOpened + seconds(60); }).empty());
}

TEST(Membership, ASpareTakesPartOnlyIfAnotherNodeIsMissing) {
  Membership nodes({.min_nodes = 2, .max_nodes = 2, .num_spares = 1, .last_call = seconds(30)}, kOpened);
  nodes.add(12, 2, kOpened);  // the spare is there first
  nodes.add(10, 0, kOpened);
  EXPECT_EQ(nodes.judge(kOpened + seconds(29)), Verdict::kWait);
  EXPECT_EQ(nodes.judge(kOpened + seconds(30)), Verdict::kStart) << "a node that does not come is not waited for";
  EXPECT_THAT(nodes.choose(), ElementsAre(10, 12));
  nodes.add(11, 1, kOpened + seconds(5));
  EXPECT_EQ(nodes.judge(kOpened + seconds(5)), Verdict::kStart);
  EXPECT_THAT(nodes.choose(), ElementsAre(10, 11));
  nodes.remove(10);
  nodes.wait_for_next(kOpened + seconds(100), true);
  EXPECT_EQ(nodes.judge(kOpened + seconds(100)), Verdict::kStart) << "at once";
  EXPECT_THAT(nodes.choose(), ElementsAre(12, 11)) << "it has the node rank of the lost one";
  nodes.remove(11);
  EXPECT_EQ(nodes.judge(kOpened + seconds(100)), Verdict::kWait);
}

TEST(Membership, NnodesAsTheyAreWritten) {
  EXPECT_EQ(nnodes_of({.min_nodes = 2, .max_nodes = 2}), "2");
  EXPECT_EQ(nnodes_of({.min_nodes = 2, .max_nodes = 4}), "2:4");
}

}  // namespace
}  // namespace yoke::launch

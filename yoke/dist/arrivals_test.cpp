#include "yoke/dist/arrivals.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/dist/detail/call_log.h"

namespace yoke::dist {
namespace {

using testing::ElementsAre;

TEST(Arrivals, NamesWhoIsBehind) {
  EXPECT_EQ(describe_arrivals(12, 0, {{0, 12}, {1, 11}, {2, 12}}), "rank 1 has not arrived (it is at collective 11)");
  EXPECT_EQ(describe_arrivals(12, 0, {{0, 12}, {1, 11}, {2, 9}, {3, 13}}),
            "ranks 1 and 2 have not arrived (the last is at collective 9)");
  EXPECT_EQ(describe_arrivals(1, 1, {{0, std::nullopt}, {1, 1}}),
            "rank 0 has not arrived (not even at the first collective)");
}

// A rank publishes its number at most once a second, so the number of a rank that has ended is an old one.
TEST(Arrivals, DoesNotNameTheCollectiveOfARankThatHasEnded) {
  EXPECT_EQ(describe_arrivals(57, 0, {{0, 57}, {1, 0}}, /*is_lost=*/true),
            "rank 1 has not arrived, and has probably ended");
  EXPECT_EQ(describe_arrivals(57, 0, {{0, 57}, {1, 0}, {2, 40}}, /*is_lost=*/true),
            "ranks 1 and 2 have not arrived, and one of them has probably ended");
}

TEST(Arrivals, NamesRanksOfAGroupByTheirRankInTheWorld) {
  EXPECT_EQ(describe_arrivals(12, 4, {{1, 11}, {4, 12}, {7, 9}}),
            "ranks 1 and 7 have not arrived (the last is at collective 9)");
}

TEST(Arrivals, NamesWhoIsAheadWhereNobodyIsBehind) {
  EXPECT_EQ(describe_arrivals(5, 1, {{0, 9}, {1, 5}}),
            "rank 0 is at collective 9, ahead of this rank: the two call different collectives");
}

TEST(Arrivals, DoesNotBlameItselfOrTheArrived) {
  // The number of this rank in the store may be slightly out of date.
  EXPECT_EQ(describe_arrivals(12, 0, {{0, 11}, {1, 12}}).find("not arrived"), std::string::npos);
}

TEST(Arrivals, TellsWhoCameTooEarly) {
  EXPECT_EQ(describe_absent_ranks(12, {1}, {{0, 12}, {1, 12}}), "rank 1 has not arrived");
  EXPECT_EQ(describe_absent_ranks(12, {0, 1}, {{0, 11}, {1, std::nullopt}, {2, 12}}), "ranks 0 and 1 have not arrived");
  EXPECT_EQ(
      describe_absent_ranks(9, {0, 2}, {{0, 12}, {1, 9}, {2, 12}}),
      "ranks 0 and 2 have not arrived; rank 0 is at collective 12 and this rank has entered 9: it has skipped some");
  EXPECT_EQ(describe_absent_ranks(9, {1}, {}), "rank 1 has not arrived");
}

TEST(Arrivals, SaysWhereRanksAre) {
  EXPECT_EQ(describe_calls({}), "");
  EXPECT_EQ(describe_calls({{0, {128, "saving a checkpoint"}}, {1, {128, "barrier"}}, {3, {128, "barrier"}}}),
            "rank 0 is at saving a checkpoint (collective 128), ranks 1 and 3 are at barrier (collective 128)");
  EXPECT_EQ(describe_calls({{0, {1, "a"}}, {1, {2, "a"}}, {2, {3, "a"}}, {3, {4, "a"}}, {4, {5, "a"}}}),
            "rank 0 is at a (collective 1), rank 1 is at a (collective 2), rank 2 is at a (collective 3), rank 3 is at "
            "a (collective 4), and others elsewhere");
}

TEST(CallLog, KnowsTheLastCallsByNumber) {
  const auto kinds = [](const CallLog& log, uint64_t now) {
    std::vector<std::string> result;
    for (const auto& [number, kind] : log.last(now)) result.push_back(fmt::format("{} {}", number, kind));
    return result;
  };
  CallLog log;
  EXPECT_THAT(kinds(log, 0), ElementsAre());
  log.add(1, "all_reduce", 8, at::kLong);
  log.add(2, "all_to_all");
  EXPECT_THAT(kinds(log, 2), ElementsAre("1 all_reduce of 8 Long", "2 all_to_all"));
  EXPECT_THAT(kinds(log, 3), ElementsAre("1 all_reduce of 8 Long", "2 all_to_all")) << "of an unknown kind";
  EXPECT_TRUE(log.begin("a step", 3));
  EXPECT_FALSE(log.begin("within it", 3));
  EXPECT_THAT(kinds(log, 3), ElementsAre("1 all_reduce of 8 Long", "2 all_to_all")) << "entered before the activity";
  EXPECT_THAT(kinds(log, 5), ElementsAre("1 all_reduce of 8 Long", "2 all_to_all", "5 a step"));
  log.add(6, "broadcast", 1);
  log.end(7);
  EXPECT_THAT(kinds(log, 7), ElementsAre("1 all_reduce of 8 Long", "2 all_to_all", "6 a step", "7 a step"));
  log.add(8, "barrier");
  for (uint64_t number = 9; number < 16; ++number) log.add(number, "barrier");
  EXPECT_EQ(kinds(log, 15).size(), 8u) << "the oldest are forgotten";
  EXPECT_EQ(kinds(log, 15).front(), "8 barrier");
}

TEST(Arrivals, ListsRanksForPeople) {
  EXPECT_EQ(list_ranks({3}), "rank 3");
  EXPECT_EQ(list_ranks({1, 2}), "ranks 1 and 2");
  EXPECT_EQ(list_ranks({1, 2, 5}), "ranks 1, 2 and 5");
  std::vector<int64_t> many(64);
  for (int64_t i = 0; i < 64; ++i) many[static_cast<size_t>(i)] = i;
  EXPECT_EQ(list_ranks(many), "ranks 0, 1, 2, 3 and 60 more");
}

}  // namespace
}  // namespace yoke::dist

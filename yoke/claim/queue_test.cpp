#include "yoke/claim/queue.h"

#include <gtest/gtest.h>

namespace yoke::claim {
namespace {

Ticket ticket(const std::string& name, int64_t uid, int64_t num_devices) {
  return {.name = name, .uid = uid, .request = {.num_devices = num_devices}};
}

Survey survey_with(std::vector<Ticket> tickets, const std::vector<int64_t>& holders = {}) {
  Survey survey{.tickets = std::move(tickets)};
  for (const auto uid : holders) survey.holdings.push_back({.key = "GPU", .uid = uid});
  return survey;
}

TEST(ClaimQueue, FirstComeFirstServed) {
  const auto survey = survey_with({ticket("a", 1, 8), ticket("b", 2, 1), ticket("c", 1, 1)});
  struct Row {
    Asker asker;
    int64_t num_ahead;
  };
  for (const auto& row : {Row{{.uid = 1, .ticket = "a"}, 0}, Row{{.uid = 2, .ticket = "b"}, 1},
                          Row{{.uid = 1, .ticket = "c"}, 2}, Row{{.uid = 3}, 3}, Row{{.uid = 1}, 3}}) {
    const auto turn = turn_of(survey, row.asker, std::nullopt);
    EXPECT_EQ(turn.num_ahead, row.num_ahead) << row.asker.ticket.value_or("-");
    EXPECT_EQ(turn.is_ours, row.num_ahead == 0);
  }
  EXPECT_TRUE(turn_of(survey_with({}), {.uid = 1}, std::nullopt).is_ours);
}

TEST(ClaimQueue, ALimitHoldsBackItsUserAndNobodyElse) {
  const auto survey = survey_with({ticket("a", 1, 2), ticket("b", 2, 1)}, {1, 1, 1});
  EXPECT_TRUE(turn_of(survey, {.uid = 1, .num_devices = 2, .ticket = "a"}, 4).is_limited);
  EXPECT_FALSE(turn_of(survey, {.uid = 1, .num_devices = 2, .ticket = "a"}, 4).is_ours);
  EXPECT_FALSE(turn_of(survey, {.uid = 1, .num_devices = 1}, 4).is_limited);
  EXPECT_TRUE(turn_of(survey, {.uid = 2, .num_devices = 1, .ticket = "b"}, 4).is_ours);
  EXPECT_FALSE(turn_of(survey, {.uid = 0, .num_devices = 100}, 4).is_limited) << "root has no limit";
  EXPECT_EQ(turn_of(survey, {.uid = 1}, 4).num_held, 3);
}

TEST(ClaimQueue, LooksComeQuicklyAtFirst) {
  std::chrono::milliseconds sum(0);
  for (int64_t look = 0; look < 6; ++look) sum += pause_before(look);
  EXPECT_LE(sum.count(), 10);
  EXPECT_EQ(pause_before(1000), std::chrono::milliseconds(1000));
  EXPECT_EQ(pause_before(-1), std::chrono::milliseconds(1000));
}

}  // namespace
}  // namespace yoke::claim

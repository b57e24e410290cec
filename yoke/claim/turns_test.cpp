#include "yoke/claim/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::claim {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

constexpr int64_t kMe = 1, kOther = 2, kThird = 3;
constexpr Time kNow{seconds(1'000'000)};

Ticket waiting(const std::string& name, int64_t uid, int64_t since, int64_t num_devices = 1) {
  return {.name = name, .uid = uid, .since = Time(seconds(since)), .request = {.num_devices = num_devices}};
}

std::vector<std::string> order_of(std::vector<Ticket> tickets, const std::map<int64_t, Time>& started = {}) {
  put_in_turns(tickets, started);
  std::vector<std::string> names;
  for (const auto& ticket : tickets) names.push_back(ticket.name);
  return names;
}

TEST(ClaimTurns, OneRequestOfEachUserIsTheOrderOfArrival) {
  EXPECT_THAT(order_of({waiting("a", 3, 10), waiting("b", 1, 20), waiting("c", 2, 30)}), ElementsAre("a", "b", "c"));
}

TEST(ClaimTurns, ManyRequestsOfOneUserAreOneTurn) {
  std::vector<Ticket> tickets;
  for (int64_t i = 0; i < 1000; ++i) tickets.push_back(waiting("many", kOther, i));
  tickets.push_back(waiting("mine", kMe, 2000));
  tickets.push_back(waiting("third", kThird, 3000));
  const auto order = order_of(tickets);
  EXPECT_THAT((std::vector<std::string>{order.begin(), order.begin() + 4}),
              ElementsAre("many", "mine", "third", "many"));
}

TEST(ClaimTurns, WhoeverGotDevicesWaitsForThoseWhoCameBefore) {
  const std::vector<Ticket> tickets = {waiting("other", kOther, 10), waiting("mine", kMe, 20),
                                       waiting("late", kThird, 40)};
  EXPECT_THAT(order_of(tickets, {{kOther, Time(seconds(30))}}), ElementsAre("mine", "other", "late"));
  EXPECT_THAT(order_of(tickets, {{kOther, Time(seconds(15))}}), ElementsAre("other", "mine", "late"));
  // The requests of one user stay in their order.
  EXPECT_THAT(order_of({waiting("1", kOther, 10), waiting("2", kOther, 20)}, {{kOther, Time(seconds(30))}}),
              ElementsAre("1", "2"));
}

TEST(ClaimTurns, StartsAreThoseThatThisProcessHasSeen) {
  QueueMemory memory;
  Survey survey;
  survey.notes.push_back({.name = "before", .uid = kOther, .note = Note{.since = kNow}});
  memory.look(survey, kNow);
  EXPECT_TRUE(memory.started().empty()) << "who had devices before this one came is no matter";
  survey.notes.push_back({.name = "forged-time", .uid = kThird, .note = Note{.since = Time(seconds(1))}});
  memory.look(survey, kNow + seconds(5));
  survey.notes.pop_back();
  memory.look(survey, kNow + seconds(9));
  EXPECT_EQ(memory.started(), (std::map<int64_t, Time>{{kThird, kNow + seconds(5)}}))
      << "whatever the note says, and although it has ended";
}

TEST(ClaimTurns, WhatIsImpossibleHoldsBackNobody) {
  Survey survey;
  survey.tickets = {waiting("too-many", kOther, 1, 9), waiting("all", kOther, 2, 8), waiting("seven", kOther, 3, 7),
                    waiting("mine", kMe, 4, 8)};
  survey.holdings = {{.key = "GPU-0", .uid = kOther}, {.key = "GPU-1", .uid = kMe}};
  leave_out_impossible(survey, kMe, 8);
  EXPECT_TRUE(survey.tickets[0].is_stopped);
  EXPECT_TRUE(survey.tickets[1].is_stopped) << "its user holds one of the eight himself";
  EXPECT_FALSE(survey.tickets[2].is_stopped);
  EXPECT_FALSE(survey.tickets[3].is_stopped) << "one's own order is one's own affair";
}

TEST(ClaimTurns, AUserWhoDoesNotTakeHisTurnIsPassedBy) {
  using Basis = QueueMemory::Basis;
  const auto begin = QueueMemory::Steady();
  Survey survey;
  survey.tickets = {waiting("forged", kOther, 1, 2), waiting("forged-too", kOther, 2), waiting("mine", kMe, 3)};
  QueueMemory memory;
  const auto held_back = [&](const std::vector<std::string>& free, Basis basis, QueueMemory::Steady now) {
    auto copy = survey;
    memory.pass_by(copy, kMe, {}, free, basis, now);
    return !copy.tickets[0].is_stopped || !copy.tickets[1].is_stopped;
  };
  const std::vector<std::string> two = {"a", "b"};
  EXPECT_TRUE(held_back(two, Basis::kLocks, begin));
  EXPECT_TRUE(held_back(two, Basis::kLocks, begin + kTurnPatience - seconds(1)));
  EXPECT_TRUE(held_back({"a"}, Basis::kDrivers, begin + kTurnPatience)) << "the drivers say that it could not start";
  EXPECT_TRUE(held_back(two, Basis::kLocks, begin + kTurnPatience)) << "so its time begins anew";
  EXPECT_FALSE(held_back(two, Basis::kLocks, begin + 2 * kTurnPatience));
  EXPECT_TRUE(held_back({"a"}, Basis::kLocks, begin + 2 * kTurnPatience)) << "nothing is proved yet";
  EXPECT_TRUE(held_back(two, Basis::kDrivers, begin + 2 * kTurnPatience));
  EXPECT_FALSE(held_back(two, Basis::kDrivers, begin + 3 * kTurnPatience));
  EXPECT_FALSE(held_back({"a"}, Basis::kLocks, begin + 3 * kTurnPatience)) << "from now on";
  survey.notes.push_back({.name = "old", .uid = kMe});
  memory.look(survey, kNow);
  survey.notes.push_back({.name = "forged", .uid = kOther});
  memory.look(survey, kNow);
  EXPECT_FALSE(held_back(two, Basis::kDrivers, begin + 3 * kTurnPatience)) << "a note is no proof of anything";
}

TEST(ClaimTurns, ManyRequestsAreNotPassedByOneAfterTheOther) {
  Survey survey;
  QueueMemory memory;
  auto now = QueueMemory::Steady();
  for (const auto* name : {"forged-1", "forged-2", "forged-3", "forged-4"}) {
    survey.tickets = {waiting(name, kOther, 1), waiting("mine", kMe, 3)};
    memory.pass_by(survey, kMe, {}, {"a"}, QueueMemory::Basis::kDrivers, now);
    now += kTurnPatience / 2;
  }
  EXPECT_TRUE(survey.tickets[0].is_stopped);
}

TEST(ClaimTurns, DevicesThatWereNamedAreFreeForThoseAlone) {
  Survey survey;
  survey.tickets = {waiting("named", kOther, 1), waiting("mine", kMe, 3)};
  survey.tickets[0].request.keys = {"c"};
  QueueMemory memory;
  const auto begin = QueueMemory::Steady();
  for (const auto now : {begin, begin + kTurnPatience}) {
    memory.pass_by(survey, kMe, {}, {"a", "b"}, QueueMemory::Basis::kDrivers, now);
    EXPECT_FALSE(survey.tickets[0].is_stopped);
  }
}

}  // namespace
}  // namespace yoke::claim

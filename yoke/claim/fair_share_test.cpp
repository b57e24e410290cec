// Histories, and the order of those who wait that follows from them.
#include "yoke/claim/fair_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::claim {
namespace {

using testing::ElementsAreArray;

constexpr int64_t kAda = 1001, kBob = 1002, kEve = 1003, kRoot = 0;
constexpr int64_t kDay = 86'400, kHalfLife = 7 * kDay, kPatience = kDay;
const Time kNow{std::chrono::seconds(1'000 * kDay)};

Time before(int64_t ago) { return kNow - std::chrono::seconds(ago); }

/// A claim of `num_devices` from `begin` until `end`, both in seconds before now.
Use use(int64_t uid, int64_t num_devices, int64_t begin, std::optional<int64_t> end) {
  Use result{.uid = uid, .claim = "claim", .since = before(begin)};
  result.keys.resize(static_cast<size_t>(num_devices), "GPU");
  if (end) result.end = before(*end);
  return result;
}

TEST(ClaimFairShare, UseDecays) {
  const auto decayed = [](const Use& one) { return decayed_use(one, std::chrono::seconds(kHalfLife), kNow); };
  EXPECT_NEAR(decayed(use(kAda, 1, 60, 0)), 60, 0.01) << "what is recent counts fully";
  EXPECT_NEAR(decayed(use(kAda, 4, 60, 0)), 240, 0.04);
  EXPECT_NEAR(decayed(use(kAda, 1, kHalfLife + 30, kHalfLife - 30)), 30, 0.01) << "half after the half-life";
  EXPECT_NEAR(decayed(use(kAda, 1, 2 * kHalfLife + 30, 2 * kHalfLife - 30)), 15, 0.01);
  EXPECT_NEAR(decayed(use(kAda, 1, 60, std::nullopt)), 60, 0.01) << "a claim that runs";
  EXPECT_EQ(decayed(use(kAda, 1, -60, std::nullopt)), 0) << "the future does not count";
  EXPECT_EQ(decayed(use(kAda, 1, 50, 60)), 0);
  EXPECT_NEAR(decayed(use(kAda, 1, 1000 * kDay, 0)), kHalfLife / 0.6931, 1000) << "for ever";
}

TEST(ClaimFairShare, OrdersOfHistories) {
  struct Row {
    const char* what;
    std::vector<Use> history;
    std::vector<std::tuple<std::string, int64_t, int64_t>> arrivals;  ///< Name, user, and for how long it waits.
    std::vector<std::string> order;
  };
  const std::vector<Row> rows = {
      {"nobody has used anything: by arrival",
       {},
       {{"1", kAda, 30}, {"2", kBob, 20}, {"3", kAda, 10}},
       {"1", "2", "3"}},
      {"whoever has nothing comes first", {use(kAda, 1, 3600, 1800)}, {{"1", kAda, 30}, {"2", kBob, 20}}, {"2", "1"}},
      {"more use comes later",
       {use(kAda, 4, 7200, 3600), use(kBob, 2, 7200, 3600), use(kEve, 1, 7200, 3600)},
       {{"1", kAda, 30}, {"2", kBob, 20}, {"3", kEve, 10}},
       {"3", "2", "1"}},
      {"devices and hours count alike: by arrival",
       {use(kAda, 4, 3600, 1800), use(kBob, 4, 3600, 1800)},
       {{"1", kBob, 30}, {"2", kAda, 20}},
       {"1", "2"}},
      {"one device for long is more than many for a moment",
       {use(kAda, 8, 3660, 3600), use(kBob, 1, 9000, 3600)},
       {{"1", kBob, 30}, {"2", kAda, 20}},
       {"2", "1"}},
      {"old use counts less",
       {use(kAda, 8, 5 * kHalfLife, 5 * kHalfLife - 3600), use(kBob, 1, 7200, 3600)},
       {{"1", kBob, 30}, {"2", kAda, 20}},
       {"2", "1"}},
      {"but it counts",
       {use(kAda, 8, kHalfLife, kHalfLife - 3600), use(kBob, 1, 7200, 3600)},
       {{"1", kAda, 30}, {"2", kBob, 20}},
       {"2", "1"}},
      {"claims that run count",
       {use(kAda, 1, 600, std::nullopt), use(kBob, 1, 7200, 7000)},
       {{"1", kAda, 30}, {"2", kBob, 20}},
       {"2", "1"}},
      {"several claims of a user add up",
       {use(kAda, 1, 7200, 3600), use(kAda, 1, 7200, 3600), use(kBob, 1, 9000, 3600)},
       {{"1", kAda, 30}, {"2", kBob, 20}},
       {"2", "1"}},
      {"the requests of one user stay in order",
       {use(kAda, 1, 7200, 3600)},
       {{"1", kAda, 40}, {"2", kAda, 30}, {"3", kBob, 20}, {"4", kBob, 10}},
       {"3", "4", "1", "2"}},
      {"root is a user like others", {use(kRoot, 1, 7200, 3600)}, {{"1", kRoot, 30}, {"2", kAda, 20}}, {"2", "1"}},
      {"whoever has waited for a day comes first, whatever was used",
       {use(kAda, 8, 7200, 0)},
       {{"1", kAda, kPatience}, {"2", kBob, 20}},
       {"1", "2"}},
      {"and those who have stay in order of arrival",
       {use(kAda, 8, 7200, 0)},
       {{"1", kAda, kPatience + 2}, {"2", kBob, kPatience + 1}, {"3", kEve, kPatience - 1}},
       {"1", "2", "3"}},
  };
  for (const auto& row : rows) {
    std::vector<Ticket> tickets;
    for (const auto& [name, uid, waits] : row.arrivals) {
      tickets.push_back({.name = name, .uid = uid, .since = before(waits)});
    }
    put_in_fair_order(tickets, use_by_user(row.history, std::chrono::seconds(kHalfLife), kNow),
                      std::chrono::seconds(kPatience), kNow);
    std::vector<std::string> order;
    for (const auto& ticket : tickets) order.push_back(ticket.name);
    EXPECT_THAT(order, ElementsAreArray(row.order)) << row.what;
  }
}

/// A machine with one device. Every hour a new user, who has used nothing, arrives and takes it for an hour. Ada, who
/// has used much, must start after her patience has ended and all who arrived before her have had their turns.
TEST(ClaimFairShare, NobodyStarves) {
  constexpr int64_t kHour = 3600;
  std::vector<Use> history = {use(kAda, 8, 30 * kDay, 0)};
  std::vector<Ticket> tickets;
  for (int64_t i = 0; i < 5; ++i) tickets.push_back({.name = "earlier", .uid = 2000 + i, .since = before(10)});
  tickets.push_back({.name = "ada", .uid = kAda, .since = before(0)});
  int64_t hour = 0;
  std::string started;
  for (; started != "ada" && hour < 1000; ++hour) {
    const auto now = kNow + std::chrono::seconds(hour * kHour);
    tickets.push_back({.name = "new", .uid = 3000 + hour, .since = now});
    std::stable_sort(tickets.begin(), tickets.end(),
                     [](const Ticket& a, const Ticket& b) { return a.since < b.since; });
    put_in_fair_order(tickets, use_by_user(history, std::chrono::seconds(kHalfLife), now),
                      std::chrono::seconds(kPatience), now);
    started = tickets.front().name;
    history.push_back(
        {.uid = tickets.front().uid, .keys = {"GPU"}, .since = now, .end = now + std::chrono::seconds(kHour)});
    tickets.erase(tickets.begin());
  }
  EXPECT_EQ(started, "ada");
  EXPECT_GT(hour, kPatience / kHour - 1) << "others came first";
  EXPECT_LE(hour, kPatience / kHour + 5 + 1) << "the bound: her patience, and then the five who came before her";
}

TEST(ClaimFairShare, WhatIsNotInTheHistoryComesFromTheLedger) {
  Survey survey;
  survey.notes = {{.name = "running", .uid = kAda, .note = Note{.since = before(100)}},
                  {.name = "unwritten", .uid = kBob, .note = Note{.since = before(50)}}};
  survey.holdings = {{.key = "GPU-0", .uid = kAda, .note = 0}, {.key = "GPU-1", .uid = kBob, .note = 1}};
  survey.dead_notes = {{"killed", before(30)}};
  const auto entry = [](int64_t uid, const std::string& claim) {
    return Use{.uid = uid, .claim = claim, .keys = {"GPU-0"}, .since = before(100), .last_sign = before(20)};
  };
  const auto uses = all_uses(
      {entry(kAda, "running"), entry(kAda, "killed"), entry(kAda, "vanished"), entry(kEve, "unwritten")}, survey, kNow);
  ASSERT_EQ(uses.size(), 5U);
  EXPECT_EQ(uses[0].end, std::nullopt);
  EXPECT_EQ(uses[1].end, before(30)) << "when its note was touched";
  EXPECT_EQ(uses[2].end, before(20)) << "when the file of the history was touched";
  EXPECT_EQ(uses[3].end, before(20)) << "eve cannot continue bob's claim";
  EXPECT_EQ(uses[4].uid, kBob);
  EXPECT_EQ(uses[4].since, before(50));
  EXPECT_EQ(uses[4].end, std::nullopt);
}

}  // namespace
}  // namespace yoke::claim

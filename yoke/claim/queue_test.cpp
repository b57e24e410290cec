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
    const auto turn = turn_of(survey, row.asker, {});
    EXPECT_EQ(turn.num_ahead, row.num_ahead) << row.asker.ticket.value_or("-");
    EXPECT_EQ(turn.is_ours, row.num_ahead == 0);
  }
  EXPECT_TRUE(turn_of(survey_with({}), {.uid = 1}, {}).is_ours);
}

TEST(ClaimQueue, ALimitHoldsBackItsUserAndNobodyElse) {
  const auto survey = survey_with({ticket("a", 1, 2), ticket("b", 2, 1)}, {1, 1, 1});
  const Limits limits{.per_user = 4};
  EXPECT_TRUE(turn_of(survey, {.uid = 1, .num_devices = 2, .ticket = "a"}, limits).excess);
  EXPECT_FALSE(turn_of(survey, {.uid = 1, .num_devices = 2, .ticket = "a"}, limits).is_ours);
  EXPECT_FALSE(turn_of(survey, {.uid = 1, .num_devices = 1}, limits).excess);
  EXPECT_TRUE(turn_of(survey, {.uid = 2, .num_devices = 1, .ticket = "b"}, limits).is_ours);
  EXPECT_FALSE(turn_of(survey, {.uid = 0, .num_devices = 100}, limits).excess) << "root has no limit";
  EXPECT_EQ(turn_of(survey, {.uid = 1, .num_devices = 2}, limits).excess, (Excess{.most = 4, .num_held = 3}));
}

TEST(ClaimQueue, AShortRequestMayFillAGap) {
  using std::chrono::seconds;
  const Time now(seconds(1'000'000));
  // The first request wants 4 devices; 2 are free, and the others end after 100, 200 and 300 s, or never.
  auto survey = survey_with({ticket("a", 1, 4), ticket("b", 2, 1)});
  for (const auto& end : std::vector<std::optional<int64_t>>{300, 100, std::nullopt, 200}) {
    Note note;
    if (end) note.until = now + seconds(*end);
    survey.holdings.push_back({.key = "GPU", .uid = 9, .note = survey.notes.size()});
    survey.notes.push_back({.uid = 9, .note = note});
  }
  const auto may = [&](int64_t num_devices, int64_t num_free, int64_t length) {
    return may_go_ahead(survey, {.uid = 2, .num_devices = num_devices, .ticket = "b"}, {}, num_free, seconds(length),
                        now);
  };
  EXPECT_TRUE(may(1, 2, 200)) << "it ends when the first one can start";
  EXPECT_FALSE(may(1, 2, 201));
  EXPECT_FALSE(may(1, 4, 10)) << "the first one is about to start";
  EXPECT_TRUE(may(1, 3, 100));
  EXPECT_FALSE(may(1, 0, 10)) << "nobody knows when the first one can start";
  survey.notes[0].note->until = now + seconds(200);  // two end at the same time, so that one device is left
  EXPECT_TRUE(may(1, 2, 5000));
  EXPECT_FALSE(may(2, 2, 5000));
  survey.notes[1].note->until = now - seconds(50);
  EXPECT_TRUE(may(1, 3, 0)) << "a claim whose time is over ends now";
  EXPECT_FALSE(may(1, 3, 10));
  EXPECT_FALSE(may_go_ahead(survey, {.uid = 9, .num_devices = 1}, {.per_user = 4}, 2, seconds(1), now))
      << "the limit holds";
  EXPECT_TRUE(may_go_ahead(survey_with({}), {.uid = 2}, {}, 1, seconds(9), now));
}

TEST(ClaimQueue, ExpectedWaits) {
  using std::chrono::seconds;
  const Time now(seconds(1'000'000));
  struct Row {
    const char* what;
    int64_t num_free;
    std::vector<std::optional<int64_t>> ends;  // of claims of one device each, in seconds from now
    std::vector<std::pair<int64_t, std::optional<int64_t>>> requests;  // devices and lengths
    std::vector<std::optional<int64_t>> waits;
  };
  const std::vector<Row> rows = {
      {"nobody waits", 4, {}, {}, {}},
      {"a device is free", 1, {}, {{1, {}}}, {0}},
      {"the first end", 0, {300, 100}, {{1, {}}}, {100}},
      {"the second end", 0, {300, 100}, {{2, {}}}, {300}},
      {"one is free, one ends", 1, {300, 100}, {{2, {}}}, {100}},
      {"a claim without an end", 0, {std::nullopt}, {{1, {}}}, {{}}},
      {"which another one does not need", 0, {std::nullopt, 50}, {{1, {}}}, {50}},
      {"those behind wait for the first", 1, {100}, {{2, {}}, {1, {}}}, {100, {}}},
      {"and for its end, if it says when", 1, {100}, {{2, 60}, {1, {}}, {1, {}}}, {100, 160, 160}},
      {"no earlier than those before", 1, {100, 200}, {{2, {}}, {1, {}}}, {100, 200}},
      {"an unknown start hides the next", 0, {100}, {{2, {}}, {1, {}}}, {{}, {}}},
      {"a time that is over", 0, {-100}, {{1, {}}}, {0}},
  };
  for (const auto& row : rows) {
    Survey survey;
    for (const auto& end : row.ends) {
      Note note;
      if (end) note.until = now + seconds(*end);
      survey.holdings.push_back({.key = "GPU", .uid = 9, .note = survey.notes.size()});
      survey.notes.push_back({.uid = 9, .note = note});
    }
    for (const auto& [num_devices, length] : row.requests) {
      auto one = ticket("t", 1, num_devices);
      if (length) one.request.length = seconds(*length);
      survey.tickets.push_back(one);
    }
    std::vector<std::optional<int64_t>> waits;
    for (const auto& wait : expected_waits(survey, {}, row.num_free, now)) {
      waits.push_back(wait ? std::optional<int64_t>(wait->count()) : std::nullopt);
    }
    EXPECT_EQ(waits, row.waits) << row.what;
  }
  const auto limited = survey_with({ticket("a", 1, 2), ticket("b", 2, 1)}, {1, 1, 1});
  const auto waits = expected_waits(limited, {.per_user = 4}, 1, now);
  EXPECT_EQ(waits[0], std::nullopt) << "its limit holds it back";
  EXPECT_EQ(waits[1], seconds(0)) << "and it holds back nobody";
}

TEST(ClaimQueue, ARequestForDevicesByNameIsExpectedWhenTheseAreFree) {
  using std::chrono::seconds;
  const Time now(seconds(1'000'000));
  auto survey = survey_with({ticket("a", 1, 2), ticket("b", 2, 1)});
  survey.tickets[0].request.keys = {"GPU-0", "GPU-1", "GPU-2"};
  for (const int64_t end : {300, 200, 100}) {
    survey.holdings.push_back(
        {.key = "GPU-" + std::to_string(survey.notes.size()), .uid = 9, .note = survey.notes.size()});
    survey.notes.push_back({.uid = 9, .note = Note{.until = now + seconds(end)}});
  }
  const auto waits = [&](int64_t num_free) { return expected_waits(survey, {}, num_free, now); };
  EXPECT_EQ(waits(5)[0], seconds(200)) << "others are free";
  EXPECT_EQ(waits(5)[1], seconds(200)) << "and whoever comes after it";
  survey.holdings[0].key = "GPU-5";
  EXPECT_EQ(waits(5)[0], seconds(100)) << "GPU-0 is free";
  survey.holdings[0].key = "GPU-0";
  survey.notes[0].note->until.reset();
  EXPECT_EQ(waits(5)[0], seconds(200)) << "two others end";
  survey.notes[1].note->until.reset();
  EXPECT_EQ(waits(5)[0], std::nullopt);
  EXPECT_EQ(waits(5)[1], std::nullopt);
}

TEST(ClaimQueue, ARequestMayPassOneThatWaitsForOtherDevices) {
  auto first = ticket("first", 1, 1);
  first.request.keys = {"GPU-0"};
  const Survey survey = survey_with({first, ticket("second", 2, 8)}, {9});
  const Asker asker{.uid = 3, .num_devices = 2};
  using Keys = std::vector<std::string>;
  EXPECT_EQ(keys_to_avoid(survey, asker, {}, {"GPU-1", "GPU-2"}), Keys{"GPU-0"});
  EXPECT_EQ(keys_to_avoid(survey, asker, {}, {"GPU-0", "GPU-1"}), std::nullopt) << "only one of them is another";
  EXPECT_EQ(keys_to_avoid(survey, asker, {.per_user = 1}, {"GPU-1", "GPU-2"}), std::nullopt) << "its own limit";
  EXPECT_EQ(keys_to_avoid(survey_with({ticket("any", 1, 1)}, {9}), asker, {}, {"GPU-1", "GPU-2"}), std::nullopt);
  EXPECT_EQ(keys_to_avoid({}, asker, {}, {"GPU-1", "GPU-2"}), std::nullopt);
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

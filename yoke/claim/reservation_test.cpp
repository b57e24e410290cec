// Reservations: which are honoured, and what they leave to claims.
#include "yoke/claim/reservation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/claim/queue.h"

namespace yoke::claim {
namespace {

using testing::HasSubstr;

const Time kMidnight{std::chrono::seconds(1'000'000'000)};
Time hour(double hours) { return kMidnight + std::chrono::seconds(static_cast<int64_t>(hours * 3600)); }

Reservation reserve(int64_t uid, int64_t num_devices, double start, double until,
                    const std::vector<std::string>& keys = {}) {
  return {.name = "yoke-reservation-1-abcd",
          .uid = uid,
          .made = kMidnight,
          .num_devices = num_devices,
          .keys = keys,
          .start = hour(start),
          .until = hour(until)};
}

/// Claims of one device each.
struct OneClaim {
  int64_t uid;
  double since;
  std::optional<double> until;
};
Survey survey_of_claims(const std::vector<OneClaim>& claims) {
  Survey survey;
  for (const auto& claim : claims) {
    Note note{.since = hour(claim.since)};
    if (claim.until) note.until = hour(*claim.until);
    survey.holdings.push_back(
        {.key = "GPU-" + std::to_string(survey.notes.size()), .uid = claim.uid, .note = survey.notes.size()});
    survey.notes.push_back({.uid = claim.uid, .note = note});
  }
  return survey;
}

std::vector<Candidate> gpus(int64_t count) {
  std::vector<Candidate> result;
  for (int64_t i = 0; i < count; ++i) result.push_back({.key = "GPU-" + std::to_string(i)});
  return result;
}

TEST(ClaimReservation, ItsTextIsRead) {
  auto one = reserve(0, 2, 9, 11, {"GPU-0", "GPU-1"});
  one.purpose = "demo";
  auto read = parse_reservation(to_text(one));
  ASSERT_TRUE(read);
  read->name = one.name;
  read->made = one.made;
  EXPECT_EQ(*read, one);
  for (const char* text :
       {"", "[]", "{}", R"({"num_devices":0,"start":1,"until":2})", R"({"num_devices":99999,"start":1,"until":2})",
        R"({"num_devices":1,"start":1})", R"({"num_devices":1,"start":-1,"until":2})",
        R"({"num_devices":1,"start":1,"until":1e18})", R"({"num_devices":1,"start":1,"until":99999999999999})",
        R"({"num_devices":3,"start":1,"until":2,"keys":["a"]})",
        R"({"num_devices":1,"start":1,"until":2,"keys":[7]})"}) {
    EXPECT_FALSE(parse_reservation(text)) << text;
  }
  EXPECT_EQ(one.id(), "abcd");
}

TEST(ClaimReservation, LimitsHoldForWhateverAFileSays) {
  const SiteConfig config{.reservations_per_user = 2, .longest = std::chrono::hours(10)};
  const Limits limits{.per_user = 4, .groups = {{.name = "students", .most = 5, .members = {2, 3}}}};
  struct Row {
    const char* what;
    std::vector<Reservation> reservations;
    const char* verdict;  ///< On the last one; empty: it is honoured.
    int64_t num_devices = 0;
  };
  const std::vector<Row> rows = {
      {"an ordinary one", {reserve(1, 4, 9, 11)}, "", 4},
      {"it ends before it starts", {reserve(1, 1, 11, 9)}, "must end after its start"},
      {"longer than claims may be", {reserve(1, 1, 9, 20)}, "may last for 10:00:00 at most"},
      {"far ahead", {reserve(1, 1, 24 * 20, 24 * 20 + 1)}, "may begin within 14 d 0 h at most"},
      {"a third one", {reserve(1, 1, 1, 2), reserve(1, 1, 3, 4), reserve(1, 1, 5, 6)}, "is one too many"},
      {"of somebody else", {reserve(1, 1, 1, 2), reserve(1, 1, 3, 4), reserve(2, 1, 5, 6)}, "", 1},
      {"above the limit of a user", {reserve(1, 5, 9, 11)}, "of 5 devices exceeds the limit of 4 devices"},
      {"together above it", {reserve(1, 3, 9, 11), reserve(1, 2, 10, 12)}, "of which 3 are reserved"},
      {"one after the other", {reserve(1, 3, 9, 11), reserve(1, 2, 11, 12)}, "", 2},
      {"above the limit of a group", {reserve(2, 3, 9, 11), reserve(3, 3, 10, 12)}, "for the group students"},
      {"what others leave", {reserve(4, 4, 9, 11), reserve(1, 3, 8, 10), reserve(5, 2, 9, 10)}, "", 1},
      {"nothing is left", {reserve(4, 4, 9, 11), reserve(1, 4, 8, 10), reserve(5, 1, 9, 10)}, "finds no device left"},
      {"a device that is reserved", {reserve(1, 1, 9, 11, {"GPU-0"}), reserve(2, 1, 10, 12, {"GPU-0"})}, "overlaps"},
      {"after that", {reserve(1, 1, 9, 11, {"GPU-0"}), reserve(2, 1, 11, 12, {"GPU-0"})}, "", 1},
      {"root: longer, and more", {reserve(0, 8, 9, 100)}, "", 8},
  };
  for (const auto& row : rows) {
    auto reservations = row.reservations;
    const auto verdict = judge_reservations(reservations, limits, config, 8).back();
    EXPECT_EQ(verdict.empty(), row.verdict[0] == '\0') << row.what << ": " << verdict;
    EXPECT_THAT(verdict, HasSubstr(row.verdict)) << row.what;
    EXPECT_EQ(verdict.empty() ? reservations.back().num_devices : 0, row.num_devices) << row.what;
  }
  auto huge = std::vector{reserve(1, 4096, 9, 11)};
  EXPECT_EQ(judge_reservations(huge, {}, {}, 8)[0], "");
  EXPECT_EQ(huge[0].num_devices, 8) << "not more than there are, so later ones are judged rightly";
}

/// A machine with four devices, at 8 o'clock.
TEST(ClaimReservation, WhatTheyLeaveToAClaim) {
  struct Row {
    const char* what;
    std::vector<Reservation> reservations;
    std::vector<OneClaim> claims;
    std::optional<double> end;  ///< Of the new claim.
    int64_t most;
    int64_t uid = 1;
  };
  constexpr int64_t kAll = INT64_MAX;
  const std::vector<Row> rows = {
      {"nothing is reserved", {}, {}, {}, kAll},
      {"a claim that ends before", {reserve(2, 3, 9, 11)}, {}, 9, kAll},
      {"a claim that ends after the start", {reserve(2, 3, 9, 11)}, {}, 9.1, 1},
      {"a claim without an end", {reserve(2, 3, 9, 11)}, {}, {}, 1},
      {"everything is reserved", {reserve(2, 4, 9, 11)}, {}, {}, 0},
      {"one's own reservation", {reserve(1, 4, 9, 11)}, {}, {}, kAll},
      {"a claim that ends in time", {reserve(2, 2, 9, 11)}, {{3, 7, 9}, {3, 7, {}}}, {}, 1},
      {"a claim that does not", {reserve(2, 2, 9, 11)}, {{3, 7, 9.5}, {3, 7, {}}}, {}, 0},
      {"too few are left already", {reserve(2, 4, 9, 11)}, {{3, 7, {}}}, {}, -1},
      {"two at the same time", {reserve(2, 1, 9, 11), reserve(3, 2, 10, 12)}, {}, {}, 1},
      {"one after the other", {reserve(2, 1, 9, 10), reserve(3, 2, 10, 12)}, {}, {}, 2},
      {"the second is later than the end", {reserve(2, 1, 9, 10), reserve(3, 2, 10, 12)}, {}, 9.5, 3},
      {"it runs now", {reserve(2, 2, 7, 11)}, {}, {}, 2},
      {"its user has taken some", {reserve(2, 2, 7, 11)}, {{2, 7.5, {}}}, {}, 2},
      {"and all", {reserve(2, 1, 7, 11)}, {{2, 7.5, {}}}, {}, kAll},
      {"what he had before does not count", {reserve(2, 1, 7, 11)}, {{2, 6.5, {}}}, {}, 2},
      {"it is over", {reserve(2, 4, 6, 7.5)}, {}, {}, kAll},
      {"it is somebody else's whom nobody excepts", {reserve(1, 4, 9, 11)}, {}, {}, 0, -1},
  };
  for (const auto& row : rows) {
    const auto survey = survey_of_claims(row.claims);
    const auto end = row.end ? std::optional(hour(*row.end)) : std::nullopt;
    const auto devices = availability_of(gpus(4), survey, hour(8));
    EXPECT_EQ(find_leave(row.reservations, survey, devices, row.uid, end, hour(8)).most, row.most) << row.what;
  }
}

TEST(ClaimReservation, DevicesThatAreNamed) {
  const std::vector reservations = {reserve(2, 2, 9, 11, {"GPU-0", "GPU-1"})};
  const Survey survey;
  const auto devices = availability_of(gpus(4), survey, hour(8));
  const auto leave = find_leave(reservations, survey, devices, 1, std::nullopt, hour(8));
  EXPECT_EQ(leave.reserved_keys.size(), 2U);
  EXPECT_TRUE(leave.reserved_keys.contains("GPU-1"));
  EXPECT_EQ(leave.most, 2) << "the other two";
  EXPECT_TRUE(find_leave(reservations, survey, devices, 2, std::nullopt, hour(8)).reserved_keys.empty());
  EXPECT_TRUE(find_leave(reservations, survey, devices, 1, hour(9), hour(8)).reserved_keys.empty());
}

TEST(ClaimReservation, DevicesThatNobodyKnowsToEndAreMissing) {
  struct Row {
    const char* what;
    std::vector<Reservation> reservations;  ///< The last one is new.
    std::vector<OneClaim> claims;
    int64_t num_missing;
  };
  const std::vector<Row> rows = {
      {"all are free", {reserve(1, 4, 9, 11)}, {}, 0},
      {"a claim ends before", {reserve(1, 4, 9, 11)}, {{2, 7, 9}}, 0},
      {"a claim ends later", {reserve(1, 4, 9, 11)}, {{2, 7, 10}}, 1},
      {"claims without an end", {reserve(1, 4, 9, 11)}, {{2, 7, {}}, {2, 7, {}}}, 2},
      {"others are left", {reserve(1, 2, 9, 11)}, {{2, 7, {}}, {2, 7, {}}}, 0},
      {"with an earlier reservation", {reserve(3, 2, 10, 12), reserve(1, 2, 9, 11)}, {{2, 7, {}}}, 1},
      {"which is over before", {reserve(3, 2, 7, 9), reserve(1, 3, 9, 11)}, {{2, 7, {}}}, 0},
      {"a device that is named", {reserve(1, 1, 9, 11, {"GPU-0"})}, {{2, 7, {}}}, 1},
      {"another device that is named", {reserve(1, 1, 9, 11, {"GPU-1"})}, {{2, 7, {}}}, 0},
      {"which leaves too few to the others", {reserve(3, 3, 9, 11), reserve(1, 1, 9, 11, {"GPU-3"})}, {{2, 7, {}}}, 1},
  };
  for (const auto& row : rows) {
    const auto survey = survey_of_claims(row.claims);
    EXPECT_EQ(num_missing(row.reservations, survey, availability_of(gpus(4), survey, hour(8))), row.num_missing)
        << row.what;
  }
}

TEST(ClaimReservation, ItEndsIfNobodyUsesIt) {
  const SiteConfig config{.reserve_grace = std::chrono::minutes(30)};
  const auto one = reserve(1, 2, 9, 11);
  const Survey nobody;
  EXPECT_FALSE(has_lapsed(one, nobody, {}, config, hour(8))) << "it has not begun";
  EXPECT_FALSE(has_lapsed(one, nobody, {}, config, hour(9.4)));
  EXPECT_TRUE(has_lapsed(one, nobody, {}, config, hour(9.5)));
  EXPECT_FALSE(has_lapsed(one, survey_of_claims({{1, 9.1, {}}}), {}, config, hour(10)));
  EXPECT_TRUE(has_lapsed(one, survey_of_claims({{2, 9.1, {}}}), {}, config, hour(10)));
  const Use use{.uid = 1, .keys = {"GPU-0"}, .since = hour(9.2), .end = hour(9.9)};
  EXPECT_FALSE(has_lapsed(one, nobody, {use}, config, hour(10))) << "it was used until a moment ago";
  EXPECT_TRUE(has_lapsed(one, nobody, {use}, config, hour(10.4)));
  EXPECT_TRUE(has_lapsed(one, survey_of_claims({{1, 9.1, {}}}), {}, config, hour(11))) << "its time is over";
}

TEST(ClaimReservation, WhatIsReservedNowWaitsForNobodyAndCountsOnce) {
  Survey survey = survey_of_claims({{1, 7.5, {}}});
  const std::vector reservations = {reserve(1, 3, 7, 11), reserve(2, 2, 9, 11)};
  survey.reserved = num_reserved_now(reservations, survey, hour(8));
  EXPECT_EQ(survey.reserved, (std::map<int64_t, int64_t>{{1, 2}}));
  survey.tickets = {{.name = "t", .uid = 3, .request = {.num_devices = 4}}};
  const Limits limits{.per_user = 3};
  EXPECT_TRUE(turn_of(survey, {.uid = 1, .num_devices = 2}, limits).is_ours);
  EXPECT_TRUE(turn_of(survey, {.uid = 1, .num_devices = 3}, limits).excess) << "one, and two, and one more";
  EXPECT_FALSE(turn_of(survey, {.uid = 1, .num_devices = 3}, {}).is_ours) << "more than is reserved";
  EXPECT_FALSE(turn_of(survey, {.uid = 2}, {}).is_ours) << "its time has not come";
}

}  // namespace
}  // namespace yoke::claim

#include "yoke/claim/limits.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace yoke::claim {
namespace {

constexpr int64_t kFirstUser = 1001, kSecondUser = 1002, kThirdUser = 1003;

TEST(ClaimLimits, OfUsersAndGroups) {
  const Limits limits{.per_user = 4,
                      .of_user = {{kFirstUser, 8}, {kThirdUser, 1}},
                      .groups = {{.name = "students", .most = 5, .members = {kSecondUser, kThirdUser}}}};
  struct Row {
    const char* what;
    int64_t uid, num_devices;
    std::map<int64_t, int64_t> held;
    std::optional<Excess> excess;
  };
  const std::vector<Row> rows = {
      {"nobody has anything", kSecondUser, 4, {}, {}},
      {"the limit of everybody", kSecondUser, 5, {}, Excess{.most = 4}},
      {"what one has counts", kSecondUser, 2, {{kSecondUser, 3}}, Excess{.most = 4, .num_held = 3}},
      {"what others have does not", kSecondUser, 4, {{kFirstUser, 8}}, {}},
      {"a limit of one's own can be higher", kFirstUser, 8, {}, {}},
      {"and is a limit", kFirstUser, 1, {{kFirstUser, 8}}, Excess{.most = 8, .num_held = 8}},
      {"or lower", kThirdUser, 2, {}, Excess{.most = 1}},
      {"a group counts together", kSecondUser, 4, {{kThirdUser, 1}}, {}},
      {"and is full together",
       kThirdUser,
       1,
       {{kSecondUser, 5}},
       Excess{.group = "students", .most = 5, .num_held = 5}},
      {"not for others", kFirstUser, 3, {{kSecondUser, 4}, {kThirdUser, 1}}, {}},
      {"root has none", 0, 100, {{0, 100}}, {}},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(find_excess(limits, row.held, row.uid, row.num_devices), row.excess) << row.what;
  }
  EXPECT_EQ(find_excess({}, {}, kFirstUser, 100), std::nullopt);
}

TEST(ClaimLimits, WhatAUserAllowsHimselfIsForHimAlone) {
  const Limits limits{.per_user = 4, .own = 2, .own_uid = kFirstUser};
  EXPECT_EQ(limits.of(kFirstUser), 2);
  EXPECT_EQ(limits.of(kSecondUser), 4) << "or ada would start before bob, who waits for three";
  EXPECT_EQ((Limits{.per_user = 4, .own = 8, .own_uid = kFirstUser}).of(kFirstUser), 4);
  EXPECT_TRUE(find_excess(limits, {}, kFirstUser, 3)->is_own);
  EXPECT_FALSE(find_excess(limits, {}, kSecondUser, 5)->is_own);
  EXPECT_FALSE(find_excess({.per_user = 4, .own = 4, .own_uid = kFirstUser}, {}, kFirstUser, 5)->is_own);
}

TEST(ClaimLimits, NamesAreLookedUp) {
  const auto limits = resolve_limits(
      {.devices_per_user = 4, .users = {{"root", 3}, {"61001", 6}, {"no-such-user", 9}}, .groups = {{"daemon", 2}}},
      {0, 1, 61'001});
  EXPECT_EQ(limits.of_user, (std::map<int64_t, int64_t>{{0, 3}, {61'001, 6}}));
  ASSERT_EQ(limits.groups.size(), 1U);
  EXPECT_EQ(limits.groups[0].members, std::set<int64_t>{1}) << "the user daemon, by the number that the kernel has";
  EXPECT_EQ(limits.own_uid, int64_t{geteuid()});
}

TEST(ClaimLimits, UnknownNamesAreListed) {
  const auto unknown = unknown_names(
      {.users = {{"root", 3}, {"61001", 6}, {"no-such-user", 9}}, .groups = {{"daemon", 2}, {"no-such-group", 1}}});
  EXPECT_EQ(unknown.users, std::vector<std::string>{"no-such-user"});
  EXPECT_EQ(unknown.groups, std::vector<std::string>{"no-such-group"});
}

}  // namespace
}  // namespace yoke::claim

#include "yoke/storage/quota.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace yoke::storage {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30, kNow = 1'800'000'000;

Quota user(Allowance bytes, Allowance files = {}) { return {QuotaOf::kUser, 1001, bytes, files}; }

TEST(Quotas, WhatProgramsPrintIsRead) {
  // A run of quota 4.06 on ext4. showquotas() prints servers' answers in the same way.
  const char* const printed =
      "Disk quotas for user ada (uid 1001): \n"
      "     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace\n"
      "     /dev/loop0   29698*  20480   40960 1796347813       4     100     200       0\n";
  EXPECT_EQ(parse_quota(printed, QuotaOf::kUser, 1001),
            user({29698 * 1024, 20480 * 1024, 40960 * 1024, 1'796'347'813}, {4, 100, 200}));
  // print_quota() of lfs: names of more than 15 characters have a line of their own, what some servers did not say is
  // in brackets, and "-" is no time.
  const char* const lustre =
      "/mnt/lustre-scratch\n"
      "                  [20]  100000  200000       -       7*      5       6    none\n";
  EXPECT_EQ(parse_quota(lustre, QuotaOf::kGroup, 7),
            (Quota{QuotaOf::kGroup, 7, {20 * 1024, 100'000 * 1024, 200'000 * 1024}, {7, 5, 6}}));
  EXPECT_EQ(parse_quota("    /lustre      20       0       0       -       1       0       0       -\n", QuotaOf::kUser,
                        1001),
            user({20 * 1024}, {1}));
  for (const char* none : {"", "Disk quotas for user ada (uid 1001): none\n", "Permission denied.\n"}) {
    EXPECT_FALSE(parse_quota(none, QuotaOf::kUser, 1001)) << none;
  }
}

TEST(Quotas, ALimitBeyondAllDisksLeavesAllOfTheDisk) {
  const auto quota = parse_quota("srv:/d 20 0 9223372036854775807 - 1 0 9223372036854775807 -\n", QuotaOf::kUser, 1001);
  ASSERT_TRUE(quota);
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(*quota, user({.used = 20 * 1024, .hard = kMost}, {.used = 1, .hard = kMost}));
  EXPECT_EQ(quota->bytes.left(kNow), kMost - 20 * 1024);
}

TEST(Quotas, WhatIsLeftIsWhatCanBeWritten) {
  const struct {
    Allowance allowance;
    int64_t left;
  } cases[] = {
      {{.used = 5}, std::numeric_limits<int64_t>::max()},
      {{.used = 5, .hard = 8}, 3},
      {{.used = 9, .hard = 8}, 0},
      {{.used = 5, .soft = 6}, 1},
      {{.used = 5, .soft = 6, .hard = 8}, 3},
      {{.used = 7, .soft = 6, .hard = 8, .until = kNow + 1}, 1},
      {{.used = 7, .soft = 6, .hard = 8, .until = kNow}, 0},
  };
  for (const auto& [allowance, left] : cases) {
    EXPECT_EQ(allowance.left(kNow), left) << allowance.used << ' ' << allowance.soft << ' ' << allowance.hard;
  }
  Quotas quotas;
  EXPECT_EQ(quotas.left_bytes(kNow), std::numeric_limits<int64_t>::max());
  quotas.list = {user({.used = 1, .hard = 9}), {QuotaOf::kProject, 7, {.used = 2, .hard = 4}}, user({})};
  EXPECT_EQ(quotas.left_bytes(kNow), 2) << "the tightest one counts";
}

TEST(Quotas, SentencesNameTheLimit) {
  EXPECT_EQ(quota_text(user({.used = 80 * kGiB, .hard = 100 * kGiB}), "ada", kNow),
            "user ada: 80.0 GiB of 100.0 GiB, 20.0 GiB left");
  EXPECT_EQ(quota_text(user({.used = kGiB}, {.used = 1200, .soft = 4000, .hard = 5000}), "ada", kNow),
            "user ada: 1.0 GiB; 1200 of 5000 files");
  EXPECT_EQ(quota_text(user({3 * kGiB, 2 * kGiB, 4 * kGiB, kNow + 7200}), "ada", kNow),
            "user ada: 3.0 GiB of 4.0 GiB, 1.0 GiB left, above the soft limit of 2.0 GiB, so writes fail in 2 h");
  EXPECT_EQ(quota_text(user({3 * kGiB, 2 * kGiB, 4 * kGiB, kNow - 1}), "ada", kNow),
            "user ada: 3.0 GiB of 4.0 GiB, 0 B left, above the soft limit of 2.0 GiB, so writes fail until some are "
            "deleted");
}

TEST(Quotas, PassBetweenProcesses) {
  const Quotas quotas{{user({1, 2, 3, 4}, {5, 6, 7, 8}), {QuotaOf::kProject, 42, {.hard = 9}}}, "why"};
  const auto bytes = to_bytes(quotas);
  FieldReader fields(bytes);
  const auto read = read_quotas(fields);
  EXPECT_EQ(read.list, quotas.list);
  EXPECT_EQ(read.unknown, "why");
}

TEST(Quotas, AreAskedForWithoutHarmWhereThereAreNone) {
  const auto quotas = quotas_of("/proc");
  EXPECT_TRUE(quotas.list.empty());
  EXPECT_EQ(quotas.unknown, "");
}

}  // namespace
}  // namespace yoke::storage

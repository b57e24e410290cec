#include "yoke/base/cpu_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace yoke {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;

TEST(CpuSet, ListsOfTheKernel) {
  const auto set = CpuSet::parse_list("0-3,8,10-11");
  ASSERT_TRUE(set);
  EXPECT_THAT(set->to_vector(), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_EQ(set->to_list(), "0-3,8,10-11");
  EXPECT_EQ(set->size(), 7);
  EXPECT_EQ(CpuSet::parse_list("8,0-3"), CpuSet({0, 1, 2, 3, 8}));
  EXPECT_EQ(CpuSet::parse_list(""), CpuSet());
  EXPECT_THAT(CpuSet().to_list(), IsEmpty());
}

TEST(CpuSet, WhatIsNoList) {
  for (const auto* text : {"x", "1,", ",1", "1,,2", "3-1", "-1", "+1", "1-", "1-2-3", "0 1", "65536",
                           "0-99999999999999", "99999999999999999999999", "0x3", "1\n"}) {
    EXPECT_EQ(CpuSet::parse_list(text), std::nullopt) << text;
  }
}

TEST(CpuSet, MasksOfSlurm) {
  EXPECT_EQ(CpuSet::parse_mask("0xfe"), CpuSet::parse_list("1-7"));
  EXPECT_EQ(CpuSet::parse_mask("FE00"), CpuSet::parse_list("9-15"));
  EXPECT_EQ(CpuSet::parse_mask("0x00fe000000000000"), CpuSet::parse_list("49-55"));
  EXPECT_EQ(CpuSet::parse_mask("0"), CpuSet());
  EXPECT_EQ(CpuSet::parse_mask("1" + std::string(32, '0')), CpuSet{128});
  EXPECT_EQ(CpuSet::parse_list("49-55,113-119")->to_mask(), "0xfe00000000000000fe000000000000");
  EXPECT_EQ(CpuSet{64}.to_mask(), "0x10000000000000000");
  EXPECT_EQ(CpuSet().to_mask(), "0x0");
  for (const auto* text : {"", "0x", "0xg", "fe,fe", "-1", " 1"}) {
    EXPECT_EQ(CpuSet::parse_mask(text), std::nullopt) << text;
  }
  EXPECT_EQ(CpuSet::parse_mask(std::string(100'000, 'f')), std::nullopt);
  EXPECT_EQ(CpuSet::parse_mask(std::string(100'000, '0') + "1"), CpuSet{0});
}

// Oracle: std::set. The sets have CPUs on both sides of the boundaries between 64-bit words.
TEST(CpuSet, OperationsAreThoseOfSets) {
  uint64_t state = 1;
  const auto random = [&](uint64_t below) {  // Knuth's MMIX generator
    state = state * 6364136223846793005 + 1442695040888963407;
    return (state >> 33) % below;
  };
  for (int round = 0; round < 300; ++round) {
    const auto most = 1 + random(3000);
    std::set<int64_t> a, b;
    CpuSet x, y;
    for (uint64_t i = 0; i < 1 + random(40); ++i) {
      const auto p = static_cast<int64_t>(random(most)), q = static_cast<int64_t>(random(most / 2 + 1));
      a.insert(p), x.add(p), b.insert(q), y.add(q);
    }
    std::set<int64_t> both, without, all = a;
    for (const auto cpu : a) (b.count(cpu) != 0 ? both : without).insert(cpu);
    all.insert(b.begin(), b.end());
    EXPECT_THAT((x & y).to_vector(), ElementsAreArray(both));
    EXPECT_THAT((x | y).to_vector(), ElementsAreArray(all));
    EXPECT_THAT((x - y).to_vector(), ElementsAreArray(without));
    EXPECT_EQ(x.intersects(y), !both.empty());
    EXPECT_EQ(x.is_subset_of(y), without.empty());
    EXPECT_EQ((x & y) | (x - y), x);
    EXPECT_EQ((x - x), CpuSet());
    EXPECT_EQ(x.first(), *a.begin());
    EXPECT_EQ(x.contains(*b.begin()), a.count(*b.begin()) != 0);
    EXPECT_EQ(CpuSet::parse_list(x.to_list()), x);
    EXPECT_EQ(CpuSet::parse_mask(x.to_mask()), x);
  }
}

TEST(CpuSet, Empty) {
  EXPECT_TRUE(CpuSet().empty());
  EXPECT_TRUE((CpuSet{5} & CpuSet{200}).empty());
  EXPECT_EQ(CpuSet().first(), std::nullopt);
  EXPECT_FALSE(CpuSet{5}.contains(-1));
  EXPECT_FALSE(CpuSet{5}.contains(1'000'000));
}

}  // namespace
}  // namespace yoke

#include "yoke/profile/intervals.h"

#include <gtest/gtest.h>

#include <bitset>
#include <random>

namespace yoke::profile {
namespace {

constexpr int64_t kEnd = 64;
using Bits = std::bitset<kEnd>;

Bits bits(const Intervals& intervals) {
  Bits result;
  for (const auto& interval : intervals) {
    for (auto at = interval.begin; at < interval.end; ++at) result.set(static_cast<size_t>(at));
  }
  return result;
}

bool is_set(const Intervals& intervals) {
  for (size_t i = 0; i < intervals.size(); ++i) {
    if (intervals[i].length() <= 0 || (i > 0 && intervals[i].begin < intervals[i - 1].end)) return false;
  }
  return true;
}

// Oracle: the same operations on sets with one bit for each moment.
TEST(Intervals, AreSetsOfMoments) {
  std::mt19937 random(7);
  const auto any = [&] {
    Intervals intervals;
    for (auto count = random() % 6; count > 0; --count) {
      const auto begin = static_cast<int64_t>(random() % kEnd);
      intervals.push_back({begin, std::min<int64_t>(kEnd, begin + static_cast<int64_t>(random() % 20))});
    }
    return intervals;
  };
  for (int i = 0; i < 20'000; ++i) {
    const auto raw_a = any(), raw_b = any();
    const auto a = union_of(raw_a), b = union_of(raw_b);
    const auto both = intersect(a, b), rest = subtract(a, b);
    ASSERT_TRUE(is_set(a) && is_set(both) && is_set(rest));
    ASSERT_EQ(bits(a), bits(raw_a));
    ASSERT_EQ(bits(both), bits(a) & bits(b));
    ASSERT_EQ(bits(rest), bits(a) & ~bits(b));
    const Interval window{static_cast<int64_t>(random() % 30), 30 + static_cast<int64_t>(random() % 30)};
    ASSERT_EQ(length_within(a, window), static_cast<int64_t>((bits(a) & bits({window})).count()));
  }
}

}  // namespace
}  // namespace yoke::profile

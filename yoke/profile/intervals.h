// yoke/profile/intervals.h -- sets of time intervals. Overlapping time counts once.
#pragma once

#include <cstdint>
#include <vector>

namespace yoke::profile {

struct Interval {
  int64_t begin = 0, end = 0;
  int64_t length() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

/// Sorted, disjoint intervals, none of them empty.
using Intervals = std::vector<Interval>;

/// Returns the union of intervals that may overlap and be in any order.
Intervals union_of(Intervals any);
Intervals intersect(const Intervals& a, const Intervals& b);
Intervals subtract(const Intervals& a, const Intervals& b);

int64_t total(const Intervals& set);

/// Returns the length of the part of `set` that is inside `window`.
int64_t length_within(const Intervals& set, Interval window);

}  // namespace yoke::profile

#include "yoke/profile/intervals.h"

#include <algorithm>

namespace yoke::profile {

Intervals union_of(Intervals any) {
  std::ranges::sort(any, [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  Intervals set;
  for (const auto& interval : any) {
    if (interval.end <= interval.begin) continue;
    if (!set.empty() && interval.begin <= set.back().end) {
      set.back().end = std::max(set.back().end, interval.end);
    } else {
      set.push_back(interval);
    }
  }
  return set;
}

Intervals intersect(const Intervals& a, const Intervals& b) {
  Intervals set;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
    const Interval both{std::max(i->begin, j->begin), std::min(i->end, j->end)};
    if (both.begin < both.end) set.push_back(both);
    i->end < j->end ? ++i : ++j;
  }
  return set;
}

Intervals subtract(const Intervals& a, const Intervals& b) {
  Intervals set;
  auto j = b.begin();
  for (auto rest : a) {
    while (j != b.end() && j->end <= rest.begin) ++j;
    for (auto k = j; k != b.end() && k->begin < rest.end; ++k) {
      if (k->begin > rest.begin) set.push_back({rest.begin, k->begin});
      rest.begin = std::min(std::max(rest.begin, k->end), rest.end);
    }
    if (rest.begin < rest.end) set.push_back(rest);
  }
  return set;
}

int64_t total(const Intervals& set) {
  int64_t sum = 0;
  for (const auto& interval : set) sum += interval.length();
  return sum;
}

int64_t length_within(const Intervals& set, Interval window) {
  int64_t length = 0;
  auto at = std::ranges::upper_bound(set, window.begin, {}, &Interval::end);
  for (; at != set.end() && at->begin < window.end; ++at) {
    length += std::min(at->end, window.end) - std::max(at->begin, window.begin);
  }
  return length;
}

}  // namespace yoke::profile

// yoke/base/median.h -- the median of some numbers. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace yoke {

/// The mean of the two middle values if their number is even. REQUIRES: there are values.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace yoke

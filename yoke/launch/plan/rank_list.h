// yoke/launch/plan/rank_list.h -- several ranks as a short text. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::launch {

/// Returns a text such as "0-6,8". REQUIRES: the numbers are in ascending order.
std::string to_list(const std::vector<int64_t>& ranks);

}  // namespace yoke::launch

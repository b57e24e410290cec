// yoke/launch/plan/rank_list.h -- formats a list of ranks. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::launch {

/// Returns a text such as "0-6,8". REQUIRES: `ranks` is in ascending order.
std::string to_list(const std::vector<int64_t>& ranks);

}  // namespace yoke::launch

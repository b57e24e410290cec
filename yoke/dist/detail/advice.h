// yoke/dist/detail/advice.h -- what ranks that wait in different collectives should do instead.
#pragma once

#include <string>
#include <vector>

namespace yoke::dist {

/// Pure. A clause such as "the sizes must be the same on all ranks". `kinds`: what the ranks have called, such as
/// "all_reduce of 8 Float with SUM" or "saving a checkpoint".
std::string advice_for(const std::vector<std::string>& kinds);

}  // namespace yoke::dist

// yoke/dist/detail/shared_words.h -- what a collective in shared memory is, in words.
#pragma once

#include <string>

#include "yoke/dist/shared/segment.h"

namespace yoke::dist {

/// Pure. Such as "all_reduce of 8 Float with MAX" or "broadcast of 3 Long with root 1"; the root as a rank of the
/// group. Without the number if it is not known.
std::string describe_call(const shared::Header& header);

}  // namespace yoke::dist

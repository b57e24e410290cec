// yoke/models/detail/check.h -- refuses options of a network. Internal.
#pragma once

#include <utility>

#include "yoke/base/error.h"

namespace yoke::models::detail {

/// Throws kInvalidArgument with the formatted text unless `condition` holds.
template <typename... Args>
void check_that(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw Error(ErrorCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

}  // namespace yoke::models::detail

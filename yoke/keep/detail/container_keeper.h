// yoke/keep/detail/container_keeper.h -- the process that holds the claim of a container.
#pragma once

#include "yoke/keep/run_container.h"

namespace yoke::keep {

/// Runs in the keeper's process until the container has ended. `output`: of a client that the keeper logs. Returns
/// false if the process at the other end of `channel` has ended before the container began. Errors  the container
/// cannot be started.
bool keep_container(KeptContainer kept, UniqueFd& channel, UniqueFd output, const Environment& environment,
                    const Tell& tell);

}  // namespace yoke::keep

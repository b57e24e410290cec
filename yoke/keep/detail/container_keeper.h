// yoke/keep/detail/container_keeper.h -- the process that holds the claim of a container, and the messages between it
// and the process that starts the engine's client.
#pragma once

#include <chrono>
#include <optional>

#include "yoke/base/json.h"
#include "yoke/keep/run_container.h"

namespace yoke::keep {

/// How long a container may take from the end of the client that has started it in the background to its first program.
inline constexpr std::chrono::seconds kDetachedStart{30};

/// Sends a message, and `file` with it if there is one. If that fails, each process finds that the other one is gone.
/// Returns false then, with errno.
bool send_message(const UniqueFd& channel, const Json& message, const UniqueFd& file = {});

/// Waits for a message, and puts the file that came with it into `file`. Returns nullopt if the other process is gone.
std::optional<Json> receive_message(const UniqueFd& channel, UniqueFd* file = nullptr);

/// Runs in the keeper's process until the container has ended. `output`: of a client that the keeper logs. Returns
/// false if the process at the other end of `channel` has ended before the container began. Errors  the container
/// cannot be started.
bool keep_container(KeptContainer kept, UniqueFd& channel, UniqueFd output, const Environment& environment,
                    const Tell& tell);

}  // namespace yoke::keep

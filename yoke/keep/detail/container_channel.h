// yoke/keep/detail/container_channel.h -- the messages between the keeper of a container and the process that starts
// the engine's client.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "yoke/base/file.h"

namespace yoke::keep {

/// How long a container may take from the end of the client that has started it in the background to its first program.
inline constexpr std::chrono::seconds kDetachedStart{30};

/// Sends a message, and `file` with it if there is one. If that fails, each process finds that the other one is gone.
/// Returns false then, with errno.
bool send_message(const UniqueFd& channel, const nlohmann::ordered_json& message, const UniqueFd& file = {});

/// Waits for a message, and puts the file that came with it into `file`. Returns nullopt if the other process is gone.
std::optional<nlohmann::ordered_json> receive_message(const UniqueFd& channel, UniqueFd* file = nullptr);

}  // namespace yoke::keep

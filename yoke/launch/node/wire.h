// yoke/launch/node/wire.h -- the messages between the head and its agents as JSON.
//
// The head sends {launch} (first, and only over ssh), {prepare}, {start}, {order}, {replace}, {ack} and {end}. An agent
// sends {event} and {output}.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "yoke/launch/node/node.h"

namespace yoke::launch {

inline constexpr int kProtocol = 6;

/// The first bytes that an agent started over ssh prints on standard output and error. Everything before them comes
/// from the login shell.
inline constexpr std::string_view kAgentPreamble = "yoke/1 agent\n";

nlohmann::json to_json(const NodePlace& place);
NodePlace to_place(const nlohmann::json& json);

nlohmann::json to_json(const NodeEvent& event);
/// Errors  nlohmann::json::exception or kInvalidArgument if `json` is not an event.
NodeEvent to_event(const nlohmann::json& json);

}  // namespace yoke::launch

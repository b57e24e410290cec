// yoke/launch/node/wire.h -- the messages between the head and its agents as JSON.
//
// The head sends {launch} (first, and only over ssh), {prepare}, {start}, {order}, {ack} and {end}. An agent sends
// {event} and {output}.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "yoke/launch/node/node.h"

namespace yoke::launch {

inline constexpr int kProtocol = 1;

/// The first bytes of an agent that was started over ssh, on its standard output and error. Everything before them was
/// printed by the login shell.
inline constexpr std::string_view kAgentPreamble = "yoke/1 agent\n";

nlohmann::json to_json(const Place& place);
Place to_place(const nlohmann::json& json);

nlohmann::json to_json(const NodeEvent& event);
/// Errors  nlohmann::json::exception, kInvalidArgument: this is not an event.
NodeEvent to_event(const nlohmann::json& json);

}  // namespace yoke::launch

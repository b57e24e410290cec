// yoke/launch/node/wire.h -- the messages of head and agents as JSON.
//
// Head to agent: {launch} (over ssh alone, first), {prepare}, {start}, {order}, {ack}, {end}. Agent to head: {event},
// {output}.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "yoke/launch/node/node.h"

namespace yoke::launch {

inline constexpr int kProtocol = 1;

/// What an agent that was started over ssh says first, on its standard output and error: whatever a login shell printed
/// before it is none of ours.
inline constexpr std::string_view kAgentPreamble = "yoke/1 agent\n";

nlohmann::json to_json(const Place& place);
Place to_place(const nlohmann::json& json);

nlohmann::json to_json(const NodeEvent& event);
/// Errors  nlohmann::json::exception, kInvalidArgument: this is none.
NodeEvent to_event(const nlohmann::json& json);

}  // namespace yoke::launch

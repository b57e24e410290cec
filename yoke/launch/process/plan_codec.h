// yoke/launch/process/plan_codec.h -- plans as text, to send them to the guardian process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "yoke/launch/plan/plan.h"

namespace yoke::launch {

/// The parts of the plans that the guardian needs. Output is left out, because the guardian gets its descriptors.
std::string encode_plans(const std::vector<RankPlan>& plans);

/// Errors  kInternal: `text` is not from encode_plans().
std::vector<RankPlan> decode_plans(std::string_view text);

}  // namespace yoke::launch

// yoke/launch/process/plan_codec.h -- encodes plans as text, to send them to the guardian process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "yoke/launch/plan/plan.h"

namespace yoke::launch {

/// Encodes what the guardian needs of the plans. Output is left out, because the guardian receives its descriptors.
std::string encode_plans(const std::vector<RankPlan>& plans);

/// Errors  kInternal if `text` is not from encode_plans().
std::vector<RankPlan> decode_plans(std::string_view text);

}  // namespace yoke::launch

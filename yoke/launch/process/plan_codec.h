// yoke/launch/process/plan_codec.h -- plans on their way to the guardian, which is another process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "yoke/launch/plan/plan.h"

namespace yoke::launch {

/// What the guardian needs of the plans. It needs nothing about their output, whose descriptors it is sent.
std::string encode_plans(const std::vector<RankPlan>& plans);

/// Errors  kInternal: `text` is not from encode_plans().
std::vector<RankPlan> decode_plans(std::string_view text);

}  // namespace yoke::launch

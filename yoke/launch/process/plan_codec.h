// yoke/launch/process/plan_codec.h -- plans on their way to the guardian, which is another process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "yoke/launch/plan/plan.h"

namespace yoke::launch {

/// What the guardian needs of the plans: not where their output goes, which it is given as descriptors. CBOR (RFC
/// 8949), whose texts may hold any bytes.
std::string encode_plans(const std::vector<RankPlan>& plans);

/// Errors  kInternal: this is no text of encode_plans().
std::vector<RankPlan> decode_plans(std::string_view text);

}  // namespace yoke::launch

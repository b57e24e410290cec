// yoke/profile/report.h -- a judgement as text for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "yoke/profile/judge.h"

namespace yoke::profile {

/// The answer first, then its evidence. Tables fit into `width` columns; sentences are not broken.
std::string to_text(const Report& report, int64_t width);

/// docs/profile.md describes the members.
nlohmann::ordered_json to_json(const Report& report);

}  // namespace yoke::profile

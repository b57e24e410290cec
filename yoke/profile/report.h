// yoke/profile/report.h -- converts a Report to text for people and to JSON for programs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "yoke/profile/judge.h"

namespace yoke::profile {

/// Begins with the answer, then its evidence. Tables fit into `width` columns; sentences are not broken.
std::string to_text(const Report& report, int64_t width);

/// The members are described in docs/profile.md.
nlohmann::ordered_json to_json(const Report& report);

}  // namespace yoke::profile

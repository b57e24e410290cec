// yoke/container/detail/yaml.h -- the part of YAML that CDI specifications are written in.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace yoke::container {

/// Parses block mappings and sequences of plain and quoted scalars, and `[]` and `{}`. All scalars become strings.
/// Errors  kDataLoss, with the line: it uses another part of YAML.
nlohmann::json parse_yaml(std::string_view text);

}  // namespace yoke::container

// yoke/container/detail/yaml.h -- YAML as JSON, for CDI specifications.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace yoke::container {

/// Parses the first document of `text`; null if there is none. All scalars become strings.
/// Errors  kDataLoss: it is not YAML, with the line; or a key is not a scalar, or it is too large or too deep.
nlohmann::json parse_yaml(std::string_view text);

}  // namespace yoke::container

// yoke/site/fields.h -- fields such as {user} in texts of the configuration.
#pragma once

#include <initializer_list>
#include <string_view>

#include "yoke/site/config.h"

namespace yoke::site {

/// Refuses a misspelt field, which would stay in every path and name as it is. `known` are written with their braces.
/// Errors  kDataLoss, with file and line: the text of `key` has a brace that is not of a known field.
void check_fields(const Section& section, std::string_view key, std::initializer_list<std::string_view> known);

}  // namespace yoke::site

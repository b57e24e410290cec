// yoke/base/json.h -- the two kinds of JSON values.
#pragma once

#include <nlohmann/json.hpp>

namespace yoke {

using Json = nlohmann::ordered_json;  ///< Members keep the order in which they were added, as in what yoke prints.
using SortedJson = nlohmann::json;    ///< Members are sorted by name.

}  // namespace yoke

// yoke/base/json.h -- the two kinds of JSON values, and members that may be missing.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "yoke/base/json_text.h"

namespace yoke {

using Json = nlohmann::ordered_json;  ///< Members keep the order in which they were added, as in what yoke prints.
using SortedJson = nlohmann::json;    ///< Members are sorted by name.

/// Returns null for what is not known.
template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}
inline Json or_null(const std::string& text) { return text.empty() ? Json() : json_string<Json>(text); }

/// Returns the list of what `to_json` makes of each of `values`.
template <class Values, class ToJson>
Json json_list(const Values& values, const ToJson& to_json) {
  Json list = Json::array();
  for (const auto& value : values) list.push_back(to_json(value));
  return list;
}

/// Returns the string that is this member of `object`; empty if there is no such string.
template <class Object>
std::string text_member(const Object& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->template get<std::string>() : "";
}

}  // namespace yoke

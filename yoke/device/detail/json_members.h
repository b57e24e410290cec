// yoke/device/detail/json_members.h -- reads and writes the members of this folder's JSON.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <type_traits>

#include "yoke/base/error.h"
#include "yoke/base/json.h"
#include "yoke/base/json_text.h"

namespace yoke::device {

/// Returns `value` as JSON, with each byte that is not UTF-8 replaced. An empty text becomes null.
inline Json json_text(const std::string& value) {
  if (value.empty()) return nullptr;
  return json_string<Json>(value);
}

inline Json json_value(const std::string& text) { return json_text(text); }
inline Json json_value(int64_t number) { return number; }

/// Converts an optional to JSON; nullopt becomes null.
template <typename T>
Json json_value(const std::optional<T>& known) {
  return known ? Json(*known) : Json(nullptr);
}
inline Json json_value(const std::optional<std::string>& known) { return known ? json_text(*known) : nullptr; }

/// Returns the member at `key`, or nullptr if it is missing or null.
inline const Json* find_member(const Json& json, const char* key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

/// Errors  kDataLoss if T is an integer type that cannot hold the number, such as 1e308.
template <typename T>
T json_as(const Json& found, const char* key) {
  if (std::is_integral_v<T> && found.is_number_float() && !(std::abs(found.get<double>()) < 9e18)) {
    throw Error(ErrorCode::kDataLoss, "{} is {}", key, found.get<double>());
  }
  return found.get<T>();
}

/// Reads the member at `key` into `target`. Leaves `target` unchanged if the member is missing or null.
template <typename T>
void read_member(const Json& json, const char* key, T& target) {
  if (const auto* found = find_member(json, key)) target = json_as<T>(*found, key);
}
template <typename T>
void read_member(const Json& json, const char* key, std::optional<T>& target) {
  if (const auto* found = find_member(json, key)) target = json_as<T>(*found, key);
}

}  // namespace yoke::device

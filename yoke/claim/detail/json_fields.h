// yoke/claim/detail/json_fields.h -- reads members of JSON in files of users, who can write anything there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/json.h"

namespace yoke::claim {

inline constexpr size_t kMostPurposeBytes = 200;
/// The clock's nanoseconds in 64 bits end in the year 2262.
inline constexpr int64_t kLastSecond = 9'000'000'000;

/// A whole number from `least` to `most`; nullopt: there is none.
inline std::optional<int64_t> number_in(const SortedJson& json, const char* name, int64_t least, int64_t most) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_integer()) return std::nullopt;
  const auto value = found->get<int64_t>();
  return value >= least && value <= most ? std::optional(value) : std::nullopt;
}

/// The keys of at most `most` devices; nullopt: `keys` is something else.
inline std::optional<std::vector<std::string>> keys_in(const SortedJson& json, size_t most) {
  constexpr size_t kMostKeyBytes = 100;
  const auto keys = json.find("keys");
  if (keys == json.end() || !keys->is_array() || keys->size() > most) return std::nullopt;
  std::vector<std::string> result;
  for (const auto& key : *keys) {
    if (!key.is_string() || key.get_ref<const std::string&>().size() > kMostKeyBytes) return std::nullopt;
    result.push_back(key.get<std::string>());
  }
  return result;
}

/// The beginning of the purpose; empty: there is none.
inline std::string purpose_in(const SortedJson& json) {
  return text_member(json, "purpose").substr(0, kMostPurposeBytes);
}

}  // namespace yoke::claim

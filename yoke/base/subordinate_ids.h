// yoke/base/subordinate_ids.h -- whose user ids rootless containers have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace yoke {

/// Returns the user, by name or number as there, whose rootless containers have files and processes of the user `uid`,
/// by the text of /etc/subuid; nullopt: nobody's. Pure.
std::optional<std::string> subordinate_owner(int64_t uid, std::string_view subuid);

}  // namespace yoke

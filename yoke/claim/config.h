// yoke/claim/config.h -- what a site decides about claims: the table [claim] of /etc/yoke/config.toml.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "yoke/base/environment.h"

namespace yoke::claim {

struct SiteConfig {
  std::optional<std::filesystem::path> lock_directory;
  std::optional<int64_t> devices_per_user;      ///< Root has no limit.
  std::optional<std::chrono::seconds> longest;  ///< The most that --for may ask for; then --for is required.

  bool operator==(const SiteConfig&) const = default;
};

enum class ConfigOwner { kSite, kUser };

/// Parses a file. `name` is for messages. Errors  kDataLoss, with file and line: it is not TOML, or a key or value is
/// not known, because a misspelt limit would be no limit; kInvalidArgument: a user's file sets what only a site may.
SiteConfig parse_config(const std::string& text, const std::string& name, ConfigOwner owner);

/// The limits of both: a user's own file can make them stricter, and not looser. Pure.
SiteConfig tightened(const SiteConfig& site, const SiteConfig& user);

/// Reads /etc/yoke/config.toml, and then ~/.config/yoke/config.toml. A missing file is an empty one. YOKE_CLAIM_CONFIG
/// names a different file for the site, for tests.
/// Errors  those of parse_config(); kPermissionDenied: somebody other than root could have written the site's file.
SiteConfig read_config(const Environment& environment);

}  // namespace yoke::claim

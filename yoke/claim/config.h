// yoke/claim/config.h -- what a site decides about claims: the table [claim] of /etc/yoke/config.toml.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "yoke/base/environment.h"
#include "yoke/site/config.h"

namespace yoke::claim {

struct SiteConfig {
  std::optional<std::filesystem::path> lock_directory;
  std::optional<int64_t> devices_per_user;      ///< Root has no limit.
  std::optional<std::chrono::seconds> longest;  ///< The most that --for may ask for; then --for is required.

  bool operator==(const SiteConfig&) const = default;
};

/// Errors  kDataLoss, with file and line: a key or value is not known; kInvalidArgument: a user's file sets what only a
/// site may.
SiteConfig parse_config(const site::Section& section);

/// The limits of both: a user's own file can make them stricter, and not looser. Pure.
SiteConfig tightened(const SiteConfig& site, const SiteConfig& user);

/// The limits of the site's file and of the user's own. Errors  those of site::read_config() and parse_config().
SiteConfig read_config(const Environment& environment);

}  // namespace yoke::claim

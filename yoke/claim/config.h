// yoke/claim/config.h -- what a site decides about claims: the table [claim] of /etc/yoke/config.toml.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "yoke/base/environment.h"
#include "yoke/claim/idle.h"
#include "yoke/site/config.h"

namespace yoke::claim {

/// Who comes first among those who wait: whoever came first, or whoever has used least.
enum class Order { kFirst, kFair };

struct SiteConfig {
  std::optional<std::filesystem::path> lock_directory;
  std::optional<std::filesystem::path> history_directory;  ///< Unless given, the history is with the locks.
  std::optional<int64_t> devices_per_user;                 ///< Root has no limit.
  std::optional<int64_t> own_devices;                      ///< `devices_per_user` of the user's own file.
  std::map<std::string, int64_t> users, groups;            ///< Limits by name.
  Order order = Order::kFirst;
  std::chrono::seconds half_life = std::chrono::days(7);       ///< After this time, use counts half.
  int64_t reservations_per_user = 4;                           ///< Root has no limit.
  std::chrono::seconds reserve_ahead = std::chrono::days(14);  ///< The latest start of a reservation.
  std::chrono::seconds reserve_longest = std::chrono::days(1);
  std::chrono::seconds reserve_grace = std::chrono::minutes(30);  ///< A reservation ends if it is not used for so long.
  std::chrono::seconds patience = std::chrono::days(1);           ///< Whoever has waited for this long comes first.
  std::optional<std::chrono::seconds> longest;           ///< The most that --for may ask for; then --for is required.
  bool is_own_longest = false, is_own_idle_end = false;  ///< `longest`, `idle.end`: the user's own file is stricter.
  IdleLimits idle;
  bool is_decided = false, is_of_user = false;  ///< As in site::Config.

  bool operator==(const SiteConfig&) const = default;
};

/// Errors  kDataLoss, with file and line: a key or value is not known; kInvalidArgument: a user's file sets what only a
/// site may.
SiteConfig parse_config(const site::Section& section);

/// Who limits, at the beginning of a sentence: "this site" or "your own configuration (~/.config/yoke/config.toml)".
std::string limiter(bool is_own);

/// The limits of both: a user's own file can make them stricter, and not looser. Pure.
SiteConfig tightened(const SiteConfig& site, const SiteConfig& user);

/// The limits of the site's file and of the user's own. With `left_out`, what has a mistake is left out.
/// Errors  those of site::read_config() and parse_config().
SiteConfig read_config(const Environment& environment, site::LeftOut* left_out = nullptr);

}  // namespace yoke::claim

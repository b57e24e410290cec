// yoke/claim/limits.h -- how many devices a user, and the members of a group together, may have at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "yoke/claim/config.h"

namespace yoke::claim {

/// The limits of the configuration, by the numbers that the kernel knows. Root has no limit.
struct Limits {
  struct Group {
    std::string name;
    int64_t most = 0;
    std::set<int64_t> members;  ///< Of the users that were asked about.

    bool operator==(const Group&) const = default;
  };
  std::optional<int64_t> per_user;
  std::map<int64_t, int64_t> of_user;  ///< Counts instead of `per_user`.
  std::vector<Group> groups;
  /// What the user of this process allows himself; it has no effect on anybody else.
  std::optional<int64_t> own;
  int64_t own_uid = -1;

  /// The most that this user may have, without regard to groups; nullopt: there is no limit.
  std::optional<int64_t> of(int64_t uid) const;

  bool operator==(const Limits&) const = default;
};

/// A limit that a request would exceed.
struct Excess {
  std::string group;  ///< Empty: it is the limit of the user alone.
  int64_t most = 0;
  int64_t num_held = 0;  ///< By the user, or by the members of the group.
  bool is_own = false;   ///< The user's own file has it, and not the site's.

  bool operator==(const Excess&) const = default;
};

/// The limit that `uid` would exceed with `num_devices` more; nullopt: there is none. `num_held`: by user. Pure.
std::optional<Excess> find_excess(const Limits& limits, const std::map<int64_t, int64_t>& num_held, int64_t uid,
                                  int64_t num_devices);

/// The users and groups of the configuration that this machine does not know; numbers are not looked up. Their limits
/// count for nobody.
struct UnknownNames {
  std::vector<std::string> users, groups;
};
UnknownNames unknown_names(const SiteConfig& config);

/// Looks up the users and groups of the configuration. `uids`: those whose groups matter. A directory service is asked
/// only if the configuration names users or groups.
Limits resolve_limits(const SiteConfig& config, const std::set<int64_t>& uids);

}  // namespace yoke::claim

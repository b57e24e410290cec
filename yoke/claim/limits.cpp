#include "yoke/claim/limits.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include "yoke/base/environment.h"

namespace yoke::claim {
namespace {

constexpr size_t kMostEntryBytes = 64 << 10;

/// The groups of a user, by name and by number; empty if the system does not know the user.
std::set<std::string> groups_of(int64_t uid) {
  std::set<std::string> result;
  passwd user{}, *found = nullptr;
  std::vector<char> text(kMostEntryBytes);
  if (getpwuid_r(static_cast<uid_t>(uid), &user, text.data(), text.size(), &found) != 0 || found == nullptr) return {};
  int count = 64;
  std::vector<gid_t> gids(static_cast<size_t>(count));
  while (getgrouplist(found->pw_name, found->pw_gid, gids.data(), &count) < 0) {
    if (static_cast<size_t>(count) <= gids.size()) count = static_cast<int>(gids.size()) * 2;
    gids.resize(static_cast<size_t>(count));
  }
  gids.resize(static_cast<size_t>(count));
  std::vector<char> group_text(kMostEntryBytes * 16);  // groups with thousands of members
  for (const auto gid : gids) {
    group entry{}, *named = nullptr;
    result.insert(std::to_string(gid));
    const int error = getgrgid_r(gid, &entry, group_text.data(), group_text.size(), &named);
    if (error == 0 && named != nullptr) result.insert(named->gr_name);
  }
  return result;
}

/// The number of a user that the configuration names; nullopt: there is no such user on this machine.
std::optional<int64_t> uid_of(const std::string& name) {
  passwd user{}, *found = nullptr;
  std::vector<char> text(kMostEntryBytes);
  if (getpwnam_r(name.c_str(), &user, text.data(), text.size(), &found) == 0 && found != nullptr) return found->pw_uid;
  return parse_int(name);
}

}  // namespace

std::optional<int64_t> Limits::of(int64_t uid) const {
  if (uid == 0) return std::nullopt;
  const auto found = of_user.find(uid);
  const auto most = found == of_user.end() ? per_user : std::optional(found->second);
  return uid == own_uid ? site::stricter(most, own) : most;
}

std::optional<Excess> find_excess(const Limits& limits, const std::map<int64_t, int64_t>& num_held, int64_t uid,
                                  int64_t num_devices) {
  if (uid == 0) return std::nullopt;
  const auto held_by = [&](int64_t user) {
    const auto found = num_held.find(user);
    return found == num_held.end() ? 0 : found->second;
  };
  const auto most = limits.of(uid);
  if (most && held_by(uid) + num_devices > *most) {
    auto site_alone = limits;
    site_alone.own.reset();
    return Excess{.most = *most, .num_held = held_by(uid), .is_own = site_alone.of(uid) != most};
  }
  for (const auto& group : limits.groups) {
    if (!group.members.contains(uid)) continue;
    int64_t num_of_group = 0;
    for (const auto member : group.members) num_of_group += held_by(member);
    if (num_of_group + num_devices <= group.most) continue;
    return Excess{.group = group.name, .most = group.most, .num_held = num_of_group};
  }
  return std::nullopt;
}

UnknownNames unknown_names(const SiteConfig& config) {
  UnknownNames unknown;
  for (const auto& [name, most] : config.users) {
    if (!uid_of(name)) unknown.users.push_back(name);
  }
  std::vector<char> text(kMostEntryBytes * 16);
  for (const auto& [name, most] : config.groups) {
    group entry{}, *found = nullptr;
    const int error = getgrnam_r(name.c_str(), &entry, text.data(), text.size(), &found);
    // A directory service that does not answer is no reason to call a group unknown.
    if (error == 0 && found == nullptr && !parse_int(name)) unknown.groups.push_back(name);
  }
  return unknown;
}

Limits resolve_limits(const SiteConfig& config, const std::set<int64_t>& uids) {
  Limits limits{.per_user = config.devices_per_user, .own = config.own_devices, .own_uid = int64_t{geteuid()}};
  for (const auto& [name, most] : config.users) {
    if (const auto uid = uid_of(name)) limits.of_user[*uid] = most;
  }
  if (config.groups.empty()) return limits;
  std::map<int64_t, std::set<std::string>> groups;
  for (const auto uid : uids) groups[uid] = groups_of(uid);
  for (const auto& [name, most] : config.groups) {
    Limits::Group group{.name = name, .most = most};
    for (const auto& [uid, names] : groups) {
      if (uid != 0 && names.contains(name)) group.members.insert(uid);
    }
    limits.groups.push_back(std::move(group));
  }
  return limits;
}

}  // namespace yoke::claim

#include "yoke/launch/process/store_users.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "yoke/base/subordinate_ids.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/launch/process/descendants.h"

namespace yoke::launch {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};

std::optional<std::string> name_in_file(uid_t uid) {
  const auto users = text_of("/etc/passwd"), number = std::to_string(uid);
  for (const auto line : lines_of(users)) {
    const auto fields = split(line, ':');
    if (fields.size() > 2 && fields[2] == number) return std::string(fields[0]);
  }
  return std::nullopt;
}

/// How /etc/subuid may name this process's user. The environment is not asked, as sudo and su may leave it another
/// user's.
std::vector<std::string> own_names() {
  std::vector<std::string> names = {std::to_string(geteuid())};
  if (const auto name = name_in_file(geteuid())) names.push_back(*name);
  return names;
}

}  // namespace

bool is_subordinate(uid_t uid, const std::vector<std::string>& names, std::string_view text) {
  const auto owner = subordinate_owner(uid, text);
  return owner && std::ranges::find(names, *owner) != names.end();
}

std::string name_and_uid(uid_t uid) {
  const auto name = name_in_file(uid);
  return name ? fmt::format("{} (uid {})", printable(*name), uid) : fmt::format("uid {}", uid);
}

bool StoreUsers::may_use(uid_t uid) {
  if (uid == geteuid() || uid == getuid() || uid == 0) return true;
  const auto now = Clock::now();
  if (uid == refused_ && now - refused_at_ < kBetweenLooks) return false;
  if (is_subordinate(uid, own_names(), text_of("/etc/subuid"))) return true;
  for (const auto& process : descendants_of(job_)) {
    struct stat status {};
    if (stat(fmt::format("/proc/{}", process.pid).c_str(), &status) == 0 && status.st_uid == uid) return true;
  }
  refused_ = uid;
  refused_at_ = now;
  return false;
}

}  // namespace yoke::launch

#include "yoke/cli/options/remote.h"

#include <fmt/format.h>
#include <grp.h>

#include <chrono>
#include <utility>

#include "yoke/base/json.h"
#include "yoke/base/text.h"
#include "yoke/cli/options/value.h"
#include "yoke/device/process/info.h"

namespace yoke::cli {
namespace {

/// The name of the user or group; a project has a number.
std::string holder_of(const storage::Quota& quota) {
  if (quota.of == storage::QuotaOf::kUser) return device::user_name(quota.id);
  const auto* const group = quota.of == storage::QuotaOf::kGroup ? getgrgid(static_cast<gid_t>(quota.id)) : nullptr;
  return group == nullptr ? std::to_string(quota.id) : group->gr_name;
}

}  // namespace

void add_storage_timeout(CLI::App& cmd, double& timeout_s) {
  add_number(cmd, "--timeout", timeout_s, {"SECONDS", 0.1, 3600},
             "The command ends after this time, whatever a server or a disk does");
}

nlohmann::ordered_json remote_json(const storage::RemoteMount& mount, const storage::Condition& condition) {
  const auto since = mount.process ? mount.process->since : std::nullopt;
  return {{"host", mount.remote.host},
          {"dir", mount.remote.folder},
          {"point", mount.mount.point},
          {"user", device::user_name(mount.uid)},
          {"state", storage::name(condition.state)},
          {"reason", or_null(condition.reason)},
          {"latency_ms", condition.latency ? Json(condition.latency->count() * 1e3) : Json()},
          {"since", since ? Json(std::chrono::system_clock::to_time_t(*since)) : Json()},
          {"pid", mount.process ? Json(mount.process->pid) : Json()}};
}

std::vector<std::string> quota_lines(const storage::Quotas& quotas) {
  std::vector<std::string> lines;
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  for (const auto& quota : quotas.list) {
    lines.push_back("quota of " + storage::quota_text(quota, holder_of(quota), now));
  }
  if (!quotas.unknown.empty()) {
    lines.push_back("whether a quota limits you is not known: " + printable(quotas.unknown));
  }
  return lines;
}

nlohmann::ordered_json quotas_json(const storage::Quotas& quotas) {
  return json_list(quotas.list, [](const storage::Quota& quota) {
    Json entry = {{"of", storage::name(quota.of)}, {"id", quota.id}, {"name", holder_of(quota)}};
    for (const auto& [unit, part] : {std::pair{"bytes", quota.bytes}, std::pair{"files", quota.files}}) {
      const auto limit = [](int64_t value) { return value == 0 ? Json() : Json(value); };
      entry[fmt::format("used_{}", unit)] = part.used;
      entry[fmt::format("soft_{}", unit)] = limit(part.soft);
      entry[fmt::format("hard_{}", unit)] = limit(part.hard);
      entry[fmt::format("{}_until", unit)] = limit(part.until);
    }
    return entry;
  });
}

}  // namespace yoke::cli

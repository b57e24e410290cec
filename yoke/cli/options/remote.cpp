#include "yoke/cli/options/remote.h"

#include <fmt/format.h>
#include <grp.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

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
  nlohmann::ordered_json entry = {{"host", mount.remote.host},
                                  {"dir", mount.remote.folder},
                                  {"point", mount.mount.point},
                                  {"user", device::user_name(mount.uid)},
                                  {"state", storage::name(condition.state)},
                                  {"reason", nullptr},
                                  {"latency_ms", nullptr},
                                  {"since", nullptr},
                                  {"pid", nullptr}};
  if (!condition.reason.empty()) entry["reason"] = condition.reason;
  if (condition.latency) entry["latency_ms"] = condition.latency->count() * 1e3;
  if (!mount.process) return entry;
  entry["pid"] = mount.process->pid;
  if (mount.process->since) entry["since"] = std::chrono::system_clock::to_time_t(*mount.process->since);
  return entry;
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
  auto entries = nlohmann::ordered_json::array();
  for (const auto& quota : quotas.list) {
    nlohmann::ordered_json entry = {{"of", storage::name(quota.of)}, {"id", quota.id}, {"name", holder_of(quota)}};
    for (const auto& [unit, part] : {std::pair{"bytes", quota.bytes}, std::pair{"files", quota.files}}) {
      const auto limit = [](int64_t value) {
        return value == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(value);
      };
      entry[fmt::format("used_{}", unit)] = part.used;
      entry[fmt::format("soft_{}", unit)] = limit(part.soft);
      entry[fmt::format("hard_{}", unit)] = limit(part.hard);
      entry[fmt::format("{}_until", unit)] = limit(part.until);
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace yoke::cli

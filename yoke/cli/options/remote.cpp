#include "yoke/cli/options/remote.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "yoke/cli/help/values.h"
#include "yoke/device/process/info.h"

namespace yoke::cli {

void add_storage_timeout(CLI::App& cmd, double& timeout_s) {
  cmd.add_option("--timeout", timeout_s, "The command ends after this time, whatever a server or a disk does")
      ->type_name("SECONDS")
      ->check(in_range(0.1, 3600, "seconds"))
      ->capture_default_str();
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

std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace yoke::cli

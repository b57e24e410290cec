#include "yoke/cli/frame/node_request.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/contract/variables.h"
#include "yoke/slurm/job/holding.h"

namespace yoke::cli {
namespace {

/// Whether a variable describes a login or a host. `yoke agent` keeps its own host's values of these variables.
bool belongs_to_a_host(const std::string& name) {
  if (begins_with_any(name, {"SSH_", "XDG_", "DBUS_", "LC_TERMINAL", "TMUX"})) return true;
  static const std::set<std::string_view> kNames = {
      "HOME",     "USER", "LOGNAME", "SHELL",  "MAIL", "HOSTNAME", "HOST", "DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY",
      "WINDOWID", "STY",  "PWD",     "OLDPWD", "_",    "SHLVL"};
  return kNames.contains(name) || name == variable::kJobToken || name == variable::kNodeAddress;
}

}  // namespace

nlohmann::json environment_for_nodes(const Environment& environment, ForNodes nodes) {
  auto result = nlohmann::json::object();
  for (const auto& [name, value] : environment) {
    if (belongs_to_a_host(name) || (nodes == ForNodes::kOfSlurm && slurm::belongs_to_step(name))) continue;
    result[name] = value;
  }
  return result;
}

std::string working_folder() {
  std::error_code error;
  const auto folder = std::filesystem::current_path(error).string();
  if (!error) return folder;
  throw Error(
      ErrorCode::kFailedPrecondition,
      "cannot get the path of the working folder, where the program starts on each host: {}; if it was removed, "
      "change to a folder that all hosts have",
      error.message());
}

}  // namespace yoke::cli

#include "yoke/container/check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "yoke/base/process.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/container/build.h"
#include "yoke/container/config.h"
#include "yoke/container/engine.h"

namespace yoke::container {
namespace {

using device::Finding;
using device::Status;

class RulesCheck {
 public:
  RulesCheck(const std::vector<site::Account>& accounts, const Environment& environment)
      : accounts_(accounts), environment_(environment) {}

  std::vector<Finding> run(const SiteRules& rules) {
    const auto warn = [&](const std::string& found, const char* advice) {
      add("config", Status::kWarn, "[container] " + printable(found), advice);
    };
    for (const auto& account : accounts_) {
      const auto user = name_part(account.name);
      const auto name = named(rules.container_name, user, "train");
      if (!is_container_name(name)) {
        warn(fmt::format("{} cannot start containers: engines do not take the name {}", account.name, name),
             "change container_name");
      }
      const auto image = built_image_name(rules, account.name, "train");
      if (!is_image_name(image)) {
        warn(fmt::format("{} cannot build images: engines do not take the name {}", account.name, image),
             "change image_name");
      }
    }
    check_engine(rules.default_engine);
    if (const auto& engine = rules.default_engine; engine && !find_tool(name(*engine), environment_)) {
      warn(fmt::format("default_engine is {}, which is not in PATH", name(*engine)),
           "install it, or remove the line: then yoke uses an engine that is there");
    }
    std::error_code error;
    if (const auto& image = rules.default_image;
        image && image->starts_with('/') && !std::filesystem::exists(*image, error)) {
      warn(fmt::format("default_image is {}, which does not exist", *image), "mend the path");
    }
    return std::move(findings_);
  }

 private:
  /// Whether the users may use the engine that they get unless they choose one.
  void check_engine(std::optional<EngineKind> engine) {
    for (const auto kind : {EngineKind::kPodman, EngineKind::kDocker}) {
      if (!engine && find_tool(name(kind), environment_)) engine = kind;
    }
    const auto source = source_of_subordinate_ids(read_text("/etc/nsswitch.conf").value_or(""));
    const bool is_in_file = source == "files";
    if (engine == EngineKind::kPodman && !is_in_file) {
      add("containers", Status::kSkip,
          fmt::format("subordinate ids of users come from {} (subid in /etc/nsswitch.conf), which is not asked",
                      printable(source)),
          "`getsubids USER` lists those of a user, which podman needs");
    }
    const auto subuid = read_text("/etc/subuid").value_or("");
    for (const auto& account : accounts_) {
      if (!site::has_user(account)) continue;  // a number
      const auto is_theirs = [&](std::string_view line) {
        return line.starts_with(account.name + ":") || line.starts_with(fmt::format("{}:", account.uid));
      };
      const auto lines = lines_of(subuid);
      if (engine == EngineKind::kPodman && is_in_file && std::ranges::none_of(lines, is_theirs)) {
        add("containers", Status::kWarn,
            fmt::format("{} cannot start containers of podman: /etc/subuid has no line for this user", account.name),
            "`usermod --add-subuids FIRST-LAST --add-subgids FIRST-LAST USER`, 65536 ids that nobody else has");
      }
      const auto may_use = [&] {
        const char* const socket = "/var/run/docker.sock";
        return std::string(access(socket, R_OK | W_OK) == 0 || errno == ENOENT ? "+" : "");
      };
      if (engine == EngineKind::kDocker && geteuid() == 0 && site::as_user(account, may_use) != "+") {
        add("containers", Status::kWarn,
            fmt::format("{} may not use docker: its socket belongs to others", account.name),
            "`usermod -aG docker USER` makes the user as powerful as root; podman needs no group");
      }
    }
  }

  void add(const char* id, Status status, std::string found, std::string advice) {
    findings_.push_back({id, status, {}, std::move(found), std::move(advice)});
  }

  const std::vector<site::Account>& accounts_;
  const Environment& environment_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> check_rules(const std::vector<site::Account>& accounts, const Environment& environment) {
  return RulesCheck(accounts, environment).run(read_rules(environment));
}

}  // namespace yoke::container

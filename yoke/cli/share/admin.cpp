// `yoke admin check`: try out as two users whether the installation of claims on this machine works.
#include <algorithm>
#include <memory>

#include "yoke/base/json.h"
#include "yoke/base/text.h"
#include "yoke/claim/installation.h"
#include "yoke/cli/command.h"
#include "yoke/cli/options/value.h"
#include "yoke/container/check.h"
#include "yoke/storage/check.h"
#include "yoke/view/findings.h"

namespace yoke::cli {
namespace {

int run_admin_check(const std::vector<std::string>& users, bool json, Context& context) {
  if (!users.empty() && users.size() != 2) refuse("give two users, as in --user ada --user bob, or none");
  if (users.size() == 2 && users[0] == users[1]) refuse("--user {}: give two different users", printable(users[0]));
  const auto accounts = site::find_accounts(users);
  const auto& environment = context.environment;
  const auto findings =
      claim::check_installation({.accounts = accounts,
                                 .environment = environment,
                                 .check_containers = [&] { return container::check_rules(accounts, environment); },
                                 .check_storage = [&] { return storage::check_roots(accounts, environment); }});
  if (json) {
    print_json(Json{{"findings", json_list(findings, [](const auto& one) { return to_json(one); })}}, context);
  } else {
    context.out << view::findings_text(findings, false);
  }
  const auto has_failed = [](const auto& finding) { return finding.status == device::Status::kFail; };
  return std::any_of(findings.begin(), findings.end(), has_failed) ? 1 : kExitOk;
}

}  // namespace

void add_admin(CLI::App& cmd, Context& context) {
  cmd.require_subcommand(1);
  cmd.footer(examples("  sudo yoke admin check           try the installation as two users"));
  auto* const check = cmd.add_subcommand("check", "Try out as two users whether claims work on this machine");
  auto users = std::make_shared<std::vector<std::string>>();
  auto json = std::make_shared<bool>();
  add_values(*check, "--user", *users, "NAME",
             "One of the two users; unless given, two ordinary users of this machine");
  check->add_flag("--json", *json, "Print JSON, as `yoke doctor --json` does");
  check->footer(
      examples("  sudo yoke admin check\n"
               "  sudo yoke admin check --user ada --user bob\n"
               "\n"
               "Changes nothing but two files in the folder of locks, which it removes, and makes the lock of all if\n"
               "there is none. Without root it checks what it can.\n"
               "\n"
               "Exit status: 1 if something fails; 0 if not, with warnings too."));
  check->callback([users, json, &context] { context.exit_code = run_admin_check(*users, *json, context); });
}

}  // namespace yoke::cli

// `yoke claims`: list who has claimed which devices, and who waits for some.
#include "yoke/view/claims.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "yoke/base/text.h"
#include "yoke/claim/fair_share.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/options/claim.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/value.h"

namespace yoke::cli {
namespace {

struct ClaimsArgs {
  DeviceOptions device;
  std::string report;
  bool json = false, csv = false;
};

/// Hours by user and device, from the history.
int report(const ClaimsArgs& args, const ClaimSite& site, device::Source& source, Context& context) {
  const auto now = std::chrono::system_clock::now();
  const auto from = now - length_of("--report", args.report);
  const auto snapshot = source.sample({});
  const auto survey = look_at_claims(site, context);
  const auto rows = report_uses(all_uses(read_history(site.ledger.records(), now), survey, now), from, now);
  if (!site.config.history_directory) {
    std::cerr << speaker(context) << "note: the history is in " << site.ledger.records().path().string()
              << ", which a restart of the machine may empty; set history_directory in /etc/yoke/config.toml to keep it"
              << std::endl;
  }
  std::set<std::string> users;  // who have more than the time has, by shares or because they wrote so
  for (const auto& row : rows) {
    if (row.held > now - from) users.insert(printable(device::user_name(row.uid)));
  }
  if (!users.empty()) {
    std::cerr << fmt::format(
        "{}note: claims of {} overlap on a device, as shares may; they are added as they were written\n",
        speaker(context), fmt::join(users, ", "));
  }
  if (args.json) {
    print_json(view::report_json(rows, snapshot, from, now, device::user_name), context);
    return kExitOk;
  }
  const auto figures = args.csv ? view::Figures::kExact : view::Figures::kRounded;
  const auto table = view::report_table(rows, snapshot, device::user_name, figures);
  if (args.csv) {
    context.out << to_csv(table);
  } else if (rows.empty()) {
    context.out << "nobody had a device in this time\n";
  } else {
    context.out << to_text(table, table_width(context));
  }
  return kExitOk;
}

int run_claims(const ClaimsArgs& args, Context& context) {
  if (args.csv && args.report.empty()) refuse("--csv goes with --report");
  const auto site = open_claim_site(context, SiteUse::kLook);
  return with_source(args.device, context, [&](device::Source& source) {
    if (!args.report.empty()) return report(args, site, source, context);
    const auto snapshot = source.sample({});
    const auto now = std::chrono::system_clock::now();
    const auto claims = describe_claims(site, look_at_claims(site, context), snapshot, now);
    for (const auto& obstacle : site.ledger.folder().obstacles()) {
      std::cerr << speaker(context) << "warning: " << printable(obstacle) << std::endl;
    }
    if (args.json) {
      print_json(claims.to_json(), context);
      return kExitOk;
    }
    const auto width = table_width(context);
    context.out << (claims.rows.empty() ? "no device is claimed\n"
                                        : to_text(view::claim_table(claims.rows, now), width));
    if (!claims.survey.tickets.empty()) {
      context.out << '\n' << to_text(view::queue_table(claims.survey, claims.waits, now, device::user_name), width);
    }
    if (!claims.reservations.empty()) {
      context.out << '\n' << to_text(view::reservation_table(claims.reservations, now, device::user_name), width);
    }
    return kExitOk;
  });
}

}  // namespace

void add_claims(CLI::App& cmd, Context& context) {
  auto& args = add_args<ClaimsArgs>(cmd, context, run_claims);
  add_value(cmd, "--report", args.report, "TIME", "Print hours by user and device for this time until now: 12h, 30d");
  cmd.add_flag("--json", args.json, "Print JSON");
  cmd.add_flag("--csv", args.csv, "With --report: print CSV");
  add_deadline(cmd, args.device.deadline_s);
  cmd.footer(
      examples("  yoke claims                     who has which device, for how long, and who waits\n"
               "  yoke claims --report 30d        hours by user and device, and idle hours\n"
               "  yoke claims --json | jq -r '.claims[] | select(.user == \"ada\") | .device_uuid'\n"
               "\n"
               "Users and processes are those that the kernel names. Times and purposes are what the users say."));
}

}  // namespace yoke::cli

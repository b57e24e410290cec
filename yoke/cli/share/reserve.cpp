// `yoke reserve`: reserve devices for a later time, list reservations, and cancel them.
#include "yoke/claim/reserve.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/moment.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/options/claim.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/value.h"
#include "yoke/device/process/info.h"
#include "yoke/view/claims.h"

namespace yoke::cli {
namespace {

struct ReserveArgs {
  DeviceOptions device;
  std::string start, length, name;
  std::optional<int64_t> num_devices;
  std::vector<std::string> cancelled;
  bool list = false, json = false;
};

void check_reserve(const ReserveArgs& args) {
  const bool makes = !args.start.empty() || !args.length.empty() || args.num_devices || !args.device.chosen.empty();
  if (makes && (args.list || !args.cancelled.empty()))
    refuse("--list and --cancel go without options of a reservation");
  if (args.list || !args.cancelled.empty()) return;
  if (args.start.empty() || args.length.empty()) {
    refuse("say when and for how long, as in `yoke reserve --start \"tomorrow 9:00\" --for 2h -n 4`");
  }
}

/// The start and end that the options say.
void set_times(const ReserveArgs& args, claim::Time now, claim::Reservation& reservation) {
  const auto start = parse_moment(args.start, now);
  if (!start) {
    refuse("--start {}: give a time such as 14:00, \"tomorrow 9:00\", \"2026-11-24 09:00\", 2026-11-24T09:00Z or +2h",
           printable(args.start));
  }
  if (*start < now - std::chrono::minutes(1)) {
    refuse("--start {}: that was at {}; give a later time, such as \"tomorrow {}\"", printable(args.start),
           moment_text(*start), moment_text(*start).substr(11, 5));
  }
  reservation.start = std::chrono::floor<std::chrono::seconds>(*start);
  reservation.until = reservation.start + length_of("--for", args.length);
}

/// The devices that were named.
void set_devices(const ReserveArgs& args, const device::Snapshot& snapshot,
                 const std::vector<claim::Candidate>& candidates, claim::Reservation& reservation) {
  reservation.num_devices = args.num_devices.value_or(1);
  if (args.device.chosen.empty()) return;
  for (const auto& choice : args.device.selection().resolve(snapshot)) {
    for (const auto& candidate : candidates) {
      const bool is_it = candidate.id == choice.id() || candidate.id.starts_with(choice.id() + ":");
      if (is_it && !candidate.key.empty()) reservation.keys.push_back(candidate.key);
    }
  }
  reservation.num_devices = static_cast<int64_t>(reservation.keys.size());
  if (reservation.keys.empty() || (args.num_devices && *args.num_devices != reservation.num_devices)) {
    refuse("--device names {} devices of this machine; leave out -n, or name as many", reservation.num_devices);
  }
}

int make(const ReserveArgs& args, const ClaimSite& site, const device::Snapshot& snapshot, Context& context) {
  const auto now = std::chrono::system_clock::now();
  const auto candidates = claim::candidates_of(snapshot, {});
  claim::Reservation wanted{.uid = int64_t{geteuid()}, .made = now, .purpose = args.name};
  set_times(args, now, wanted);
  set_devices(args, snapshot, candidates, wanted);
  const auto made = claim::reserve(wanted, site.ledger, site.config, candidates);
  if (args.json) {
    print_json(view::reservations_json({{made, made.num_devices, ""}}, device::user_name)[0], context);
  } else {
    context.out << fmt::format("reservation {}: {}; `yoke reserve --cancel {}` cancels it\n", made.id(),
                               reservation_text(made), made.id());
  }
  return kExitOk;
}

/// All reservations, also those that are not honoured, with the reason.
int list(const ReserveArgs& args, const ClaimSite& site, const device::Snapshot& snapshot, Context& context) {
  const auto now = std::chrono::system_clock::now();
  const auto survey = look_at_claims(site, context);
  const auto num_devices = static_cast<int64_t>(claim::candidates_of(snapshot, {}).size());
  const auto honoured = honoured_reservations(site.ledger, survey, site.config, num_devices, now);
  const auto left = num_left(honoured, survey);
  std::vector<view::ReservationRow> rows;
  for (size_t i = 0; i < honoured.size(); ++i) rows.push_back({honoured[i], left[i], ""});
  for (const auto& one : claim::read_reservations(site.ledger.records())) {
    const auto is_it = [&](const auto& row) { return row.reservation.name == one.name; };
    if (one.until <= now || std::any_of(rows.begin(), rows.end(), is_it)) continue;
    rows.push_back({one, one.num_devices, "it exceeds a limit, or was not used"});
  }
  if (args.json) {
    const nlohmann::ordered_json json = {{"reservations", view::reservations_json(rows, device::user_name)}};
    print_json(json, context);
  } else if (rows.empty()) {
    context.out << "nothing is reserved\n";
  } else {
    context.out << to_text(view::reservation_table(rows, now, device::user_name), table_width(context));
  }
  return kExitOk;
}

int cancel(const ReserveArgs& args, const ClaimSite& site, Context& context) {
  for (const auto& id : args.cancelled) {
    claim::cancel_reservation(id, site.ledger.records());
    context.out << fmt::format("cancelled {}\n", id);
  }
  return kExitOk;
}

int run_reserve(const ReserveArgs& args, Context& context) {
  check_reserve(args);
  const bool makes = !args.list && args.cancelled.empty();
  const auto site = open_claim_site(context, makes ? SiteUse::kTake : SiteUse::kLook);
  if (!args.cancelled.empty()) return cancel(args, site, context);
  auto device = args.device;
  device.chosen.clear();  // what is reserved depends on all devices
  return with_source(device, context, [&](device::Source& source) {
    const auto snapshot = source.sample({});
    return args.list ? list(args, site, snapshot, context) : make(args, site, snapshot, context);
  });
}

}  // namespace

void add_reserve(CLI::App& cmd, Context& context) {
  auto& args = add_args<ReserveArgs>(cmd, context, run_reserve);
  add_value(cmd, "--start", args.start, "TIME",
            "When: 14:00, \"tomorrow 9:00\", \"2026-11-24 09:00\", ISO 8601, or +2h");
  add_value(cmd, "--for", args.length, "TIME", "How long: 30m, 4h, 1d12h");
  add_number(cmd, "-n,--num-devices", args.num_devices, {"N", 1, 128, "devices"},
             "How many devices; 1 unless --device names some");
  add_device_choice(cmd, args.device.chosen, "-d,--device",
                    "These devices, and not any: ids as in `yoke devices` (0, 0-3, 1:0 for MIG, UUIDs)",
                    ChoiceForm::kOneWord);
  add_value(cmd, "--name", args.name, "TEXT", "What it is for; everybody sees it");
  cmd.add_flag("--list", args.list, "List the reservations of all users");
  add_value(cmd, "--cancel", args.cancelled, "ID", "Cancel a reservation of yours; root cancels any");
  cmd.add_flag("--json", args.json, "Print JSON");
  add_deadline(cmd, args.device.deadline_s);
  cmd.footer(examples(
      "  yoke reserve --start \"tomorrow 9:00\" --for 2h -n 4    any four devices\n"
      "  yoke reserve --start +30m --for 1h -d 0,1 --name demo   these two\n"
      "  yoke reserve --list\n"
      "  yoke reserve --cancel 3f09a1c2\n"
      "\n"
      "From its start on, claim the devices as usual: `yoke claim -n 4 -- ...`. Nobody else gets them then, and\n"
      "you need not wait for others.\n"
      "\n"
      "Exit status: 0; 69 if the site or other reservations do not allow it, 75 if claims do not end before,\n"
      "or somebody who waits already would start later, 66 if there is no such reservation, 77 if it belongs to\n"
      "somebody else."));
}

}  // namespace yoke::cli

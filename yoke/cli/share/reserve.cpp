// `yoke reserve`: reserve devices for a later time, list reservations, and cancel them.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/moment.h"
#include "yoke/base/text.h"
#include "yoke/claim/reservation.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/help/values.h"
#include "yoke/cli/options/claim.h"
#include "yoke/cli/options/device.h"
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
  const auto refuse = [](const char* why) { throw Error(ErrorCode::kInvalidArgument, "{}", why); };
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
    throw Error(
        ErrorCode::kInvalidArgument,
        "--start {}: give a time such as 14:00, \"tomorrow 9:00\", \"2026-11-24 09:00\", 2026-11-24T09:00Z or +2h",
        printable(args.start));
  }
  if (*start < now - std::chrono::minutes(1)) {
    throw Error(ErrorCode::kInvalidArgument, "--start {}: that was at {}; give a later time, such as \"tomorrow {}\"",
                printable(args.start), moment_text(*start), moment_text(*start).substr(11, 5));
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
    throw Error(ErrorCode::kInvalidArgument, "--device names {} devices of this machine; leave out -n, or name as many",
                reservation.num_devices);
  }
}

/// Makes the reservation if it is possible now. Returns nullopt if looking at the claims took longer than `term`. It
/// prints nothing, because others wait.
std::optional<claim::Reservation> make_if_possible(const claim::Reservation& wanted, const ClaimSite& site,
                                                   const std::vector<claim::Candidate>& candidates,
                                                   std::chrono::seconds term) {
  const auto now = wanted.made;
  const auto num_devices = static_cast<int64_t>(candidates.size());
  auto session = site.ledger.open(claim::Ledger::Access::kTake, {.term = term});
  const auto survey = session.survey();
  for (const auto& old : claim::read_reservations(site.ledger.records())) {
    if (old.uid == int64_t{geteuid()} && old.until <= now) site.ledger.records().remove(old.name);
  }
  auto all = honoured_reservations(site.ledger, survey, site.config, num_devices, now);
  all.push_back(wanted);
  std::set<int64_t> uids;
  for (const auto& one : all) uids.insert(one.uid);
  const auto verdict = judge_reservations(all, resolve_limits(site.config, uids), site.config, num_devices).back();
  if (!verdict.empty()) throw Error(ErrorCode::kFailedPrecondition, "a reservation {}", verdict);
  if (all.back().num_devices < wanted.num_devices) {
    throw Error(ErrorCode::kFailedPrecondition,
                "{} devices are wanted, and {} of {} are not reserved for that time; `yoke reserve --list` lists them",
                wanted.num_devices, all.back().num_devices, num_devices);
  }
  if (const auto missing = num_missing(all, survey, availability_of(candidates, survey, std::min(now, wanted.start)));
      missing > 0) {
    throw Error(ErrorCode::kUnavailable,
                "{} of the {} devices would not be free at {}, because claims and programs have them that do not say "
                "that they end before; see `yoke claims`, and choose a later time, or fewer devices",
                std::min(missing, wanted.num_devices), wanted.num_devices, moment_text(wanted.start));
  }
  if (session.is_late()) return std::nullopt;
  return make_reservation(site.ledger.records(), wanted);
}

/// On a busy machine looking may take too long more than once, so each try has a longer term. Others may pass by
/// meanwhile; but readers check a reservation, too, so the term is no more than a courtesy.
claim::Reservation make_soon(const claim::Reservation& wanted, const ClaimSite& site,
                             const std::vector<claim::Candidate>& candidates) {
  for (int num_tries = 1; num_tries <= 5; ++num_tries) {
    if (auto made = make_if_possible(wanted, site, candidates, claim::kLockPatience * num_tries)) {
      return *std::move(made);
    }
  }
  throw Error(ErrorCode::kUnavailable,
              "five times looking at the claims took too long, so nothing was reserved; try again when the machine is "
              "less busy");
}

int make(const ReserveArgs& args, const ClaimSite& site, const device::Snapshot& snapshot, Context& context) {
  const auto now = std::chrono::system_clock::now();
  const auto candidates = claim::candidates_of(snapshot, {});
  claim::Reservation wanted{.uid = int64_t{geteuid()}, .made = now, .purpose = args.name};
  set_times(args, now, wanted);
  set_devices(args, snapshot, candidates, wanted);
  const auto made = make_soon(wanted, site, candidates);
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
  const auto all = claim::read_reservations(site.ledger.records());
  for (const auto& id : args.cancelled) {
    const auto can_cancel = [](const claim::Reservation& one) {
      return geteuid() == 0 || one.uid == int64_t{geteuid()};
    };
    auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.id() == id && can_cancel(one); });
    if (found == all.end())
      found = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.id() == id; });
    if (found == all.end()) {
      throw Error(ErrorCode::kNotFound, "there is no reservation {}; `yoke reserve --list` lists them", printable(id));
    }
    if (!can_cancel(*found)) {
      throw Error(ErrorCode::kPermissionDenied,
                  "the reservation {} belongs to {}; only that user or root may cancel it", id,
                  printable(device::user_name(found->uid)));
    }
    site.ledger.records().remove(found->name);
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
  auto args = std::make_shared<ReserveArgs>();  // CLI11 keeps references to it; the callback owns it
  cmd.add_option("--start", args->start, "When: 14:00, \"tomorrow 9:00\", \"2026-11-24 09:00\", ISO 8601, or +2h")
      ->type_name("TIME");
  cmd.add_option("--for", args->length, "How long: 30m, 4h, 1d12h")->type_name("TIME");
  cmd.add_option("-n,--num-devices", args->num_devices, "How many devices; 1 unless --device names some")
      ->type_name("N")
      ->check(in_range(1, 128, "devices"));
  add_device_choice(cmd, args->device.chosen, "-d,--device",
                    "These devices, and not any: ids as in `yoke devices` (0, 0-3, 1:0 for MIG, UUIDs)",
                    ChoiceForm::kOneWord);
  cmd.add_option("--name", args->name, "What it is for; everybody sees it")->type_name("TEXT");
  cmd.add_flag("--list", args->list, "List the reservations of all users");
  cmd.add_option("--cancel", args->cancelled, "Cancel a reservation of yours; root cancels any")->type_name("ID");
  cmd.add_flag("--json", args->json, "Print JSON");
  cmd.add_option("--deadline", args->device.deadline_s, "How long drivers may take to answer")
      ->type_name("SECONDS")
      ->check(in_range(0.001, 86'400, "seconds"))
      ->capture_default_str();
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
      "66 if there is no such reservation, 77 if it belongs to somebody else."));
  cmd.callback([args, &context] { context.exit_code = run_reserve(*args, context); });
}

}  // namespace yoke::cli

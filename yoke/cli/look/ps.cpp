// `yoke ps`: list the processes on all devices, with their users, jobs and containers.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/json.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/options/claim.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/repetition.h"
#include "yoke/cli/options/value.h"
#include "yoke/device/json.h"
#include "yoke/device/uses.h"
#include "yoke/view/devices.h"
#include "yoke/view/processes.h"

namespace yoke::cli {
namespace {

struct PsArgs {
  DeviceOptions device;
  std::vector<std::string> users;
  bool mine = false;
  bool wide = false;
  bool json = false;
  bool csv = false;
  Repetition repetition;
};

bool is_wanted(const device::ProcessInfo& info, const PsArgs& args) {
  if (args.mine && info.uid != int64_t{geteuid()}) return false;
  const auto is_user = [&](const std::string& user) {
    return info.user == user || (info.uid && parse_int(user) == info.uid);
  };
  return args.users.empty() || std::ranges::any_of(args.users, is_user);
}

/// Throws if a user does not exist, because a misspelt name would look like a user without processes. Names are not
/// checked with a recording, because its machine may have had other users.
void check_users(const PsArgs& args, const std::vector<device::DeviceUse>& uses) {
  if (!args.device.replay.empty()) return;
  for (const auto& user : args.users) {
    const bool is_seen =
        std::ranges::any_of(uses, [&](const device::DeviceUse& use) { return use.process.info.user == user; });
    if (is_seen || parse_int(user) || getpwnam(user.c_str()) != nullptr) continue;
    throw Error(ErrorCode::kNotFound, "there is no user `{}` here", user);
  }
}

Json to_json(const std::vector<device::DeviceUse>& uses, const std::vector<device::Unanswered>& unanswered,
             const device::Snapshot& snapshot) {
  const auto seconds = [](auto duration) { return std::chrono::duration<double>(duration).count(); };
  Json json = {{"time_seconds", seconds(snapshot.time.time_since_epoch())},
               {"host", snapshot.host},
               {"unanswered", view::unanswered_json(unanswered)},
               {"processes", Json::array()}};
  for (const auto& use : uses) {
    Json process = {{"device", use.device_id},
                    {"device_uuid", use.device_uuid.empty() ? Json(nullptr) : Json(use.device_uuid)}};
    process.update(device::to_json(use.process));
    const auto& started = use.process.info.started_at;
    process["age_seconds"] = started ? Json(seconds(snapshot.time - *started)) : Json(nullptr);
    json["processes"].push_back(std::move(process));
  }
  return json;
}

/// Returns the lines for standard error.
std::string notes(const device::Snapshot& snapshot, const std::vector<device::Unanswered>& unanswered,
                  int64_t num_ownerless, const std::string& speaker) {
  auto text = view::note_lines(snapshot, speaker);
  for (const auto& one : unanswered) text += fmt::format("{}the processes of {} are not known\n", speaker, one.what());
  if (num_ownerless > 0) {
    text += fmt::format("{}left out: {} {} whose user is not known (of another PID namespace, or hidden)\n", speaker,
                        num_ownerless, num_ownerless == 1 ? "process" : "processes");
  }
  return text;
}

/// Returns the reason why the table is empty.
std::string nobody(bool is_any, const std::vector<device::Unanswered>& unanswered, const PsArgs& args) {
  if (!unanswered.empty()) {
    std::vector<std::string> silent;
    for (const auto& one : unanswered) silent.push_back(fmt::format("{} ({})", one.what(), one.why()));
    return fmt::format("no process is known; not known are those of {}\n", fmt::join(silent, ", "));
  }
  return fmt::format("{} {}\n", is_any ? "no process of this user" : "no process",
                     args.device.chosen.empty() ? "on any device" : "on the chosen devices");
}

Picture take(const device::Snapshot& snapshot, const PsArgs& args, int64_t number, const Context& context) {
  const auto selection = args.device.selection();
  const auto unanswered = unanswered_of(snapshot, selection);
  auto uses = device::uses_of(snapshot, selection);
  check_users(args, uses);
  const bool is_any = !uses.empty();
  int64_t num_ownerless = 0;
  std::erase_if(uses, [&](const device::DeviceUse& use) {
    const bool is_left_out = !is_wanted(use.process.info, args);
    num_ownerless += is_left_out && !use.process.info.uid ? 1 : 0;
    return is_left_out;
  });
  Picture picture{.time = snapshot.time,
                  .host = snapshot.host,
                  .notes = notes(snapshot, unanswered, num_ownerless, speaker(context))};
  if (args.json) {
    picture.text = json_record(to_json(uses, unanswered, snapshot), args.repetition);
  } else if (args.csv) {
    picture.text = to_csv(view::process_csv(uses, snapshot.time), args.repetition, snapshot.time, number);
  } else if (uses.empty()) {
    picture.text = nobody(is_any, unanswered, args);
  } else {
    const auto claims = args.device.replay.empty() ? view_claims(snapshot, context) : ClaimsView();
    picture.notes += mistake_line(claims, context);
    const auto text = args.wide ? view::CommandText::kWhole : view::CommandText::kShort;
    const auto table = view::process_table(uses, snapshot.time, text, view::claim_labels(claims.rows));
    picture.text = to_text(table, args.wide ? kUnlimitedWidth : output_width(context));
  }
  return picture;
}

int run_ps(const PsArgs& args, Context& context) {
  if (args.json && args.csv) refuse("choose one of --json and --csv");
  return with_source(args.device, context, [&](device::Source& source) {
    const auto kind = args.json || args.csv ? PictureKind::kRecords : PictureKind::kText;
    repeat(args.repetition, kind, context, [&](int64_t number) {
      return take(source.sample({.process_utilization = true, .origins = true}), args, number, context);
    });
    return kExitOk;
  });
}

}  // namespace

void add_ps(CLI::App& cmd, Context& context) {
  auto& args = add_args<PsArgs>(cmd, context, run_ps);
  add_value(cmd, "-u,--user", args.users, "NAME...", "Processes of these users alone: names or numbers");
  cmd.add_flag("--mine", args.mine, "Your own processes alone");
  add_device_choice(cmd, args.device.chosen, "-d,--device",
                    "On these devices alone: indices, 0-3, 0:1 for MIG, UUIDs, PCI bus ids, amd:0, mig");
  cmd.add_flag("-w,--wide", args.wide, "Whole command lines, however long");
  cmd.add_flag("--json", args.json, "Print JSON: all that is known");
  cmd.add_flag("--csv", args.csv, "Print CSV");
  add_watch_option(cmd, args.repetition);
  add_device_options(cmd, args.device);
  cmd.footer(
      examples("  yoke ps                        who uses which device\n"
               "  yoke ps --mine --wide          your own, with whole command lines\n"
               "  yoke ps -d 0,3 -u ada          of one user on two devices\n"
               "  yoke ps --watch 1              again every second, changes highlighted\n"
               "  yoke ps --json | jq '.processes[] | select(.origin.slurm.job_id == 4121) | .pid'\n"
               "\n"
               "type is C (compute), G (graphics) or M (under MPS). A PID that belongs to another namespace, or\n"
               "is hidden from you, is listed with user `?`.\n"
               "\n"
               "Exit status: 0, also when there is no process."));
}

}  // namespace yoke::cli

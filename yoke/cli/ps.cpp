// `yoke ps`: every process on every device, and what it belongs to.
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/cli/command.h"
#include "yoke/cli/device_options.h"
#include "yoke/cli/device_views.h"
#include "yoke/cli/process_views.h"
#include "yoke/device/json.h"

namespace yoke::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Args {
  DeviceOptions device;
  std::vector<std::string> users;
  std::vector<std::string> devices;
  bool mine = false;
  bool wide = false;
  bool json = false;
  bool csv = false;
};

bool is_wanted(const device::ProcessInfo& info, const Args& args) {
  if (args.mine && info.uid != int64_t{geteuid()}) return false;
  const auto is_user = [&](const std::string& user) {
    return info.user == user || (info.uid && parse_int(user) == info.uid);
  };
  return args.users.empty() || std::any_of(args.users.begin(), args.users.end(), is_user);
}

Json to_json(const std::vector<DeviceUse>& uses, const device::Snapshot& snapshot) {
  const auto seconds = [](auto duration) { return std::chrono::duration<double>(duration).count(); };
  Json json = {{"time_seconds", seconds(snapshot.time.time_since_epoch())},
               {"host", snapshot.host},
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

int print(const device::Snapshot& snapshot, const Args& args, Context& context) {
  auto uses = uses_of(snapshot, args.devices);
  const bool is_any = !uses.empty();
  std::erase_if(uses, [&](const DeviceUse& use) { return !is_wanted(use.process.info, args); });
  if (args.json) {
    context.out << to_json(uses, snapshot).dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  } else if (args.csv) {
    context.out << to_csv(process_csv(uses, snapshot.time));
  } else if (uses.empty()) {
    const auto* where = args.devices.empty() ? "on any device" : "on the chosen devices";
    context.out << (is_any ? "no process of this user " : "no process ") << where << '\n';
  } else {
    const auto table = process_table(uses, snapshot.time, args.wide ? CommandText::kWhole : CommandText::kShort);
    context.out << to_text(table, args.wide ? kUnlimitedWidth : output_width(context));
  }
  context.out.flush();
  for (const auto& note : device_notes(snapshot)) std::cerr << "yoke ps: " << note << '\n';
  return kExitOk;
}

int run(const Args& args, Context& context) {
  if (args.json && args.csv) throw Error(ErrorCode::kInvalidArgument, "choose one of --json and --csv");
  return with_source(args.device, context, [&](device::Source& source) {
    return print(source.sample({.process_utilization = true, .origins = true}), args, context);
  });
}

}  // namespace

void add_ps(CLI::App& app, Context& context) {
  auto args = std::make_shared<Args>();  // CLI11 binds by reference; the callback keeps it alive
  auto* cmd = app.add_subcommand("ps", "List the processes on all devices, and what they belong to");
  cmd->add_option("-u,--user", args->users, "Processes of these users alone: names or numbers")->type_name("NAME...");
  cmd->add_flag("--mine", args->mine, "Your own processes alone");
  cmd->add_option("-d,--device", args->devices, "On these devices alone: indices, 0:1 for MIG, UUIDs, PCI bus ids")
      ->type_name("ID...");
  cmd->add_flag("-w,--wide", args->wide, "Whole command lines, however long");
  cmd->add_flag("--json", args->json, "Print JSON: all that is known");
  cmd->add_flag("--csv", args->csv, "Print CSV");
  add_device_options(*cmd, args->device);
  cmd->footer(
      examples("  yoke ps                        who uses which device\n"
               "  yoke ps --mine --wide          your own, with whole command lines\n"
               "  yoke ps -d 0 3 -u ada          of one user on two devices\n"
               "  yoke ps --json | jq '.processes[] | select(.origin.slurm.job_id == 4121) | .pid'\n"
               "\n"
               "type is C (compute), G (graphics) or M (under MPS). A PID that belongs to another namespace, or\n"
               "is hidden from you, is listed with user `?`.\n"
               "\n"
               "Exit status: 0, also when there is no process."));
  cmd->callback([args, &context] { context.exit_code = run(*args, context); });
}

}  // namespace yoke::cli

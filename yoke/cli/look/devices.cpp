// `yoke devices`: list the devices of this machine and what they are doing.
#include "yoke/view/devices.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/options/claim.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/repetition.h"
#include "yoke/cli/options/value.h"
#include "yoke/device/json.h"
#include "yoke/device/uses.h"

namespace yoke::cli {
namespace {

struct DevicesArgs {
  DeviceOptions device;
  bool json = false;
  bool csv = false;
  bool list = false;
  Repetition repetition;
  std::string record;
};

device::Want want_of(const DevicesArgs& args) {
  if (!args.record.empty()) return device::Want::everything();
  device::Want want{.processes = !args.list};
  want.details = args.json || !args.device.chosen.empty();
  want.process_utilization = want.details;
  want.origins = args.json;
  want.pcie_throughput = !args.device.chosen.empty();
  want.links = want.details;
  return want;
}

device::Snapshot chosen(const device::Snapshot& snapshot, const std::vector<device::Choice>& choices) {
  auto result = snapshot;
  result.devices.clear();
  for (const auto& choice : choices) result.devices.push_back(*choice.device);
  return result;
}

std::vector<device::Choice> choices_of(const device::Snapshot& snapshot, const DevicesArgs& args) {
  std::vector<device::Choice> choices;
  for (const auto& choice : args.device.selection().resolve(snapshot)) {
    const auto is_same = [&](const device::Choice& other) { return other.device == choice.device; };
    if (std::none_of(choices.begin(), choices.end(), is_same)) choices.push_back(choice);
  }
  return choices;
}

std::string pages(const std::vector<device::Choice>& choices, const std::vector<view::ClaimRow>& claims) {
  std::string text;
  for (const auto& choice : choices)
    text += (text.empty() ? "" : "\n") + view::device_page(*choice.device, choice.id(), claims);
  return text;
}

nlohmann::ordered_json json_of(const device::Snapshot& snapshot, const std::vector<device::Choice>& choices,
                               const ClaimsView& claims) {
  auto json = device::to_json(chosen(snapshot, choices));
  add_claims(json, choices, claims.problem.empty() ? &claims.rows : nullptr);
  return json;
}

std::string render(const device::Snapshot& snapshot, const ClaimsView& claims, const DevicesArgs& args, int64_t number,
                   int64_t width) {
  const auto choices = choices_of(snapshot, args);
  if (args.json) return json_record(json_of(snapshot, choices, claims), args.repetition);
  if (args.csv) {
    return to_csv(args.list ? view::device_list(choices) : view::device_csv(choices, claims.rows), args.repetition,
                  snapshot.time, number);
  }
  if (args.list) return to_text(view::device_list(choices), kUnlimitedWidth);
  if (!args.device.chosen.empty()) return pages(choices, claims.rows);
  return to_text(view::device_table(snapshot, view::claim_labels(claims.rows)), width);
}

/// Those of this machine; a recording does not have them.
ClaimsView claims_of(const device::Snapshot& snapshot, const DevicesArgs& args, const Context& context) {
  if (!args.device.replay.empty()) return {.problem = "a recording has no claims"};
  return args.list ? ClaimsView() : view_claims(snapshot, context);
}

int status_of(const device::Snapshot& snapshot, const DevicesArgs& args) {
  const bool wants_cpu = args.device.vendor == "cpu" || !args.device.chosen.empty();
  const bool is_found = std::any_of(snapshot.devices.begin(), snapshot.devices.end(), [&](const auto& device) {
    return wants_cpu || device.vendor != device::Vendor::kCpu;
  });
  if (is_found) return kExitOk;
  const bool is_certain = device::find_silent_backend(snapshot) == nullptr;
  return exit_status(is_certain ? ErrorCode::kNotFound : ErrorCode::kUnavailable);
}

int run_devices(const DevicesArgs& args, Context& context) {
  if (args.json && args.csv) refuse("choose one of --json and --csv");
  if (args.list && args.json) {
    refuse("--list is a short table, and --json has everything; choose one of them, or --list --csv");
  }
  if (!args.record.empty() && !args.device.replay.empty()) {
    refuse("--record reads this machine and --replay does not; choose one");
  }
  auto source_options = args.device;
  if (!args.record.empty()) source_options.chosen.clear();  // a recording contains all devices
  return with_source(source_options, context, [&](device::Source& source) {
    std::ofstream record;
    if (!args.record.empty()) {
      record.open(args.record);
      if (!record) throw system_error(errno, "writing the recording " + args.record);
    }
    int status = kExitOk;
    const auto kind = args.json || args.csv ? PictureKind::kRecords : PictureKind::kText;
    repeat(args.repetition, kind, context, [&](int64_t number) {
      const auto snapshot = source.sample(want_of(args));
      if (record.is_open()) {
        record << json_line(device::to_json(snapshot)) << std::endl;
        if (!record) throw system_error(errno, "writing the recording " + args.record);
      }
      status = status_of(snapshot, args);
      const auto claims = claims_of(snapshot, args, context);
      return Picture{.time = snapshot.time,
                     .host = snapshot.host,
                     .text = render(snapshot, claims, args, number, output_width(context)),
                     .notes = view::note_lines(snapshot, speaker(context)) + mistake_line(claims, context)};
    });
    return status;
  });
}

}  // namespace

void add_devices(CLI::App& cmd, Context& context) {
  auto& args = add_args<DevicesArgs>(cmd, context, run_devices);
  add_device_choice(cmd, args.device.chosen, "-i,--id",
                    "Everything about these: indices, 0-3, 0:1 for MIG, UUIDs, PCI bus ids, amd:0, mig, cpu");
  cmd.add_flag("-L,--list", args.list, "Index, UUID, PCI bus id and name alone");
  cmd.add_flag("--json", args.json, "Print JSON: all that is known");
  cmd.add_flag("--csv", args.csv, "Print CSV");
  add_watch_option(cmd, args.repetition);
  add_value(cmd, "--record", args.record, "FILE", "Write what is read to FILE, for --replay and bug reports");
  add_device_options(cmd, args.device);
  cmd.footer(
      examples("  yoke devices                    a table\n"
               "  yoke devices --watch 1          again every second, changes highlighted\n"
               "  yoke devices -i 0               everything about device 0\n"
               "  yoke devices --json | jq -r '.devices[] | select(.state == \"free\") | .index'\n"
               "  yoke devices --record bug.jsonl && yoke devices --replay bug.jsonl\n"
               "\n"
               "Exit status: 0 if there is a GPU (or what was asked for), 66 if there is none, 75 if a "
               "driver does not tell."));
}

}  // namespace yoke::cli

// `yoke kill`: show processes on devices, ask for confirmation, signal them and wait until they end.
#include "yoke/device/process/kill.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/base/signal_name.h"
#include "yoke/base/terminal.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/value.h"
#include "yoke/device/uses.h"
#include "yoke/view/devices.h"
#include "yoke/view/processes.h"

namespace yoke::cli {
namespace {

using std::chrono::milliseconds;

struct KillArgs {
  DeviceOptions device;
  std::vector<int64_t> pids;
  bool mine = false;
  bool with_any = false;
  bool yes = false;
  bool force = false;
  bool json = false;
  double wait_s = 10;
  std::string signal = "TERM";

  milliseconds wait() const { return std::chrono::ceil<milliseconds>(std::chrono::duration<double>(wait_s)); }
};

std::string describe_target(const device::KillTarget& target) {
  const auto& info = target.process.info;
  if (info.name.empty()) return fmt::format("process {}", target.pid);
  return fmt::format("process {} ({}, {})", target.pid, printable(info.user), fit(printable(info.name), 40));
}

void report_refusal(const device::KillTarget& target) {
  std::cerr << fmt::format("yoke kill: {} {}\n", describe_target(target), printable(target.refusal->reason));
}

/// A line on the terminal while the command waits. Nothing is shown in the first half second.
void show_wait(const device::KillWait& wait, const Environment& environment) {
  if (wait.waited <= milliseconds(500) || !can_redraw(environment) || !is_in_foreground(STDERR_FILENO)) return;
  if (wait.num_left == 0) {
    std::cerr << "\r\x1b[K" << std::flush;
  } else {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(wait.left).count();
    std::cerr << fmt::format("\rwaiting for {} {}, {} s left\x1b[K", wait.num_left,
                             wait.num_left == 1 ? "process" : "processes", seconds)
              << std::flush;
  }
}

bool ask(const std::string& question) {
  if (isatty(STDIN_FILENO) == 0) {
    throw Error(ErrorCode::kFailedPrecondition,
                "standard input is not a terminal to ask on, and nothing was sent; --yes does not ask");
  }
  std::cerr << question << " [y/N] " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

Json to_json(const std::vector<device::Victim>& victims, const std::vector<device::Unanswered>& unanswered,
             int signal) {
  Json json = {{"signal", signal}, {"unanswered", view::unanswered_json(unanswered)}, {"processes", Json::array()}};
  for (const auto& victim : victims) {
    const auto& info = victim.target.process.info;
    json["processes"].push_back(
        {{"pid", victim.target.pid},
         {"user", or_null(info.user)},
         {"command", or_null(info.command)},
         {"devices", victim.target.devices},
         {"result", victim.result},
         {"reason", victim.target.refusal ? Json(victim.target.refusal->reason) : Json(nullptr)}});
  }
  return json;
}

void report(const std::vector<device::Victim>& victims, const std::vector<device::Unanswered>& unanswered,
            const KillArgs& args, int signal, Context& context) {
  if (args.json) {
    print_json(to_json(victims, unanswered, signal), context);
    return;
  }
  for (const auto& victim : victims) {
    const auto what = victim.result == "ended"      ? std::string("ended")
                      : victim.result == "killed"   ? std::string("ended by SIGKILL")
                      : victim.result == "signaled" ? "got " + signal_name(signal)
                                                    : std::string();
    if (!what.empty()) context.out << fmt::format("{} {}\n", describe_target(victim.target), what);
  }
  context.out.flush();
  for (const auto& victim : victims) {
    if (victim.result == "survived") report_refusal(victim.target);
  }
}

int status_of(const std::vector<device::Victim>& victims, const std::vector<device::Unanswered>& unanswered) {
  for (const auto& victim : victims) {
    if (victim.target.refusal) return exit_status(victim.target.refusal->code);
  }
  return unanswered.empty() ? kExitOk : exit_status(ErrorCode::kUnavailable);
}

/// Reports chosen devices whose processes are not known, and the number of processes whose user is not known. If the
/// user named PIDs, no device was chosen, and there is nothing to report.
std::vector<device::Unanswered> report_unknown(const device::KillRequest& request, const device::Snapshot& snapshot) {
  if (!request.pids.empty()) return {};
  auto unanswered = unanswered_of(snapshot, request.devices);
  for (const auto& one : unanswered) {
    std::cerr << fmt::format("yoke kill: it is not known who uses {}, so nothing there was ended: {}\n",
                             one.backend.empty() ? one.what() : "the devices of " + one.what(), printable(one.reason));
  }
  if (request.uid) {
    const auto uses = device::uses_of(snapshot, request.devices);
    const auto count = std::ranges::count_if(uses, [](const auto& use) { return !use.process.info.uid; });
    if (count > 0) {
      std::cerr << fmt::format("yoke kill: left out: {} {} whose user is not known\n", count,
                               count == 1 ? "process" : "processes");
    }
  }
  return unanswered;
}

std::string table_of(const std::vector<device::Victim>& victims, std::chrono::system_clock::time_point now,
                     int64_t width) {
  std::vector<device::DeviceUse> uses;
  for (const auto& victim : victims) {
    if (!victim.is_open()) continue;
    const auto& devices = victim.target.devices;
    uses.push_back({devices.empty() ? "-" : fmt::format("{}", fmt::join(devices, ",")), "", victim.target.process});
  }
  return to_text(view::process_table(uses, now, view::CommandText::kShort), width);
}

std::string question(const std::vector<device::Victim>& victims, const KillArgs& args, int signal) {
  const auto count = std::ranges::count_if(victims, &device::Victim::is_open);
  const auto whom = count == 1 ? std::string("this process") : fmt::format("these {} processes", count);
  const auto then = args.force ? fmt::format(", and SIGKILL to what is left after {}",
                                             format_duration(std::chrono::duration<double>(args.wait_s)))
                               : std::string();
  return fmt::format("Send {} to {}{}?", signal_name(signal), whom, then);
}

int work(device::Source& source, const KillArgs& args, int signal, Context& context) {
  const auto snapshot = source.sample({.origins = true});
  const device::KillRequest request{.pids = args.pids,
                                    .devices = args.device.selection(),
                                    .uid = args.mine ? std::optional<int64_t>(geteuid()) : std::nullopt,
                                    .with_any = args.with_any};
  auto targets = device::plan_kill(request, snapshot, device::kill_asker(),
                                   [](int64_t pid) { return device::describe_process(pid); });
  auto victims = device::hold(std::move(targets));
  std::cerr << view::note_lines(snapshot, speaker(context));
  const auto unanswered = report_unknown(request, snapshot);
  for (const auto& victim : victims) {
    if (victim.target.refusal) report_refusal(victim.target);
  }
  if (std::ranges::any_of(victims, &device::Victim::is_open)) {
    if (!device::is_first_pid_namespace()) {
      std::cerr << "yoke kill: this container counts processes in its own way and the driver may not: "
                   "make sure that these are the ones you mean\n";
    }
    const auto table = table_of(victims, snapshot.time, output_width(context));
    if (args.json) {
      std::cerr << table;
    } else {
      context.out << table << std::flush;
    }
    if (!args.yes && !ask(question(victims, args, signal))) {
      std::cerr << "yoke kill: nothing was sent\n";
      return 1;
    }
    const auto show = [&](const device::KillWait& wait) { show_wait(wait, context.environment); };
    device::end(victims, {.signal = signal, .forces = args.force, .wait = args.wait(), .on_wait = show});
  } else if (victims.empty() && unanswered.empty() && !args.json) {
    context.out << "no process to end\n";
  }
  report(victims, unanswered, args, signal, context);
  return status_of(victims, unanswered);
}

int run_kill(const KillArgs& args, Context& context) {
  const int signal = parse_signal(args.signal);
  if (args.pids.empty() && args.device.chosen.empty() && !args.mine) {
    refuse("which processes? Name PIDs, or --device ID, or --mine; see `yoke ps`");
  }
  if (!args.pids.empty() && (!args.device.chosen.empty() || args.mine)) {
    refuse("name PIDs, or choose by --device and --mine, but not both");
  }
  if (args.with_any && args.pids.empty()) refuse("--any is for PIDs, and no PID is named");
  if (args.force && args.wait_s <= 0) {
    refuse("--force follows when --wait is over, and --wait 0 does not wait; --signal KILL ends at once");
  }
  if (args.force && !is_ending(signal)) {
    refuse("--force follows a signal that ends processes, which {} does not", signal_name(signal));
  }
  return with_source(args.device, context, [&](device::Source& source) { return work(source, args, signal, context); });
}

}  // namespace

void add_kill(CLI::App& cmd, Context& context) {
  auto& args = add_args<KillArgs>(cmd, context, run_kill);
  add_value(cmd, "PID", args.pids, "PID...", "Processes, as `yoke ps` lists them")->expected(0, -1);
  add_device_choice(cmd, args.device.chosen, "-d,--device",
                    "All processes on these devices: indices, 0-3, 0:1 for MIG, UUIDs, PCI bus ids, amd:0, mig");
  cmd.add_flag("--mine", args.mine, "Your own processes alone: on all devices, or on those of --device");
  cmd.add_flag("--any", args.with_any, "PIDs that are on no device, too");
  cmd.add_flag("-y,--yes", args.yes, "Do not ask");
  add_number(cmd, "--wait", args.wait_s, {"SECONDS", 0, 86'400}, "How long to wait for their end; 0: not at all");
  cmd.add_flag("--force", args.force, "Send SIGKILL to what has not ended by then");
  add_value(cmd, "-s,--signal", args.signal, "SIGNAL", "What to send instead: a name or a number")
      ->capture_default_str();
  cmd.add_flag("--json", args.json, "Print what became of each as JSON");
  add_device_options(cmd, args.device);
  // The processes in a recording cannot be signalled.
  for (const char* option : {"--replay", "--sysroot"}) cmd.remove_option(cmd.get_option(option));
  cmd.footer(
      examples("  yoke kill 4121               ask, send SIGTERM, wait up to 10 s\n"
               "  yoke kill --device 0 --mine  your processes on device 0\n"
               "  yoke kill --mine --yes --force --wait 30\n"
               "  yoke kill 4121 --signal USR1\n"
               "\n"
               "This command, its parents and PID 1 are left alone; a parent that is named is not.\n"
               "\n"
               "Exit status: 0 when all have ended; else that of the first that has not: 124 still\n"
               "running, 77 somebody else's, 69 not on a device, 66 not there; 75 when it is not known who\n"
               "uses a chosen device; 1 when the answer was no."));
}

}  // namespace yoke::cli

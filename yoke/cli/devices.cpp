// `yoke devices`: what is in this machine, and what it is doing.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "yoke/base/error.h"
#include "yoke/cli/color_option.h"
#include "yoke/cli/command.h"
#include "yoke/cli/device_options.h"
#include "yoke/cli/device_views.h"
#include "yoke/device/json.h"

namespace yoke::cli {
namespace {

struct Args {
  DeviceOptions device;
  bool json = false;
  bool csv = false;
  bool list = false;
  std::vector<std::string> ids;
  double watch_s = 2;
  CLI::Option* watch = nullptr;
  std::string record;
  ColorMode color = ColorMode::kAuto;
};

device::Want want_of(const Args& args) {
  if (!args.record.empty()) return device::Want::everything();
  device::Want want{.processes = !args.list};
  want.details = args.json || !args.ids.empty();
  want.process_utilization = want.details;
  want.origins = args.json;
  want.pcie_throughput = !args.ids.empty();
  want.links = want.details;
  return want;
}

/// The devices that the user named; all when none was.
device::Snapshot chosen(const device::Snapshot& snapshot, const std::vector<std::string>& ids) {
  if (ids.empty()) return snapshot;
  auto result = snapshot;
  result.devices.clear();
  for (const auto& id : ids) result.devices.push_back(find_device(snapshot, id));
  return result;
}

std::string pages(const device::Snapshot& snapshot, const std::vector<std::string>& ids) {
  std::string text;
  for (const auto& id : ids) {
    const auto& device = find_device(snapshot, id);
    const bool is_instance = std::none_of(snapshot.devices.begin(), snapshot.devices.end(),
                                          [&](const device::Device& other) { return &other == &device; });
    text += (text.empty() ? "" : "\n") + device_page(device, is_instance ? id : id_of(device));
  }
  return text;
}

std::string render(const device::Snapshot& snapshot, const Args& args, int64_t width) {
  // One line a snapshot where several follow each other.
  if (args.json) return device::to_json(chosen(snapshot, args.ids)).dump(args.watch->count() > 0 ? -1 : 2) + "\n";
  if (!args.ids.empty() && !args.csv && !args.list) return pages(snapshot, args.ids);
  const auto devices = chosen(snapshot, args.ids);
  if (args.csv) return to_csv(args.list ? device_list(devices) : device_csv(devices));
  return args.list ? to_text(device_list(devices), kUnlimitedWidth) : to_text(device_table(devices), width);
}

void print_notes(const device::Snapshot& snapshot, Context& context) {
  context.out.flush();
  for (const auto& note : device_notes(snapshot)) std::cerr << "yoke: " << note << '\n';
}

int status_of(const device::Snapshot& snapshot, const Args& args) {
  const bool wants_cpu = args.device.vendor == "cpu" || !args.ids.empty();
  const bool is_found = std::any_of(snapshot.devices.begin(), snapshot.devices.end(), [&](const auto& device) {
    return wants_cpu || device.vendor != device::Vendor::kCpu;
  });
  return is_found ? kExitOk : exit_status(ErrorCode::kNotFound);
}

/// Paints one picture over the other; what changed since the last one stands out, where `marks_changes`.
class Screen {
 public:
  Screen(std::ostream& out, bool marks_changes) : out_(out), marks_changes_(marks_changes) { out_ << "\x1b[2J"; }

  void paint(const std::string& text) {
    out_ << "\x1b[H";
    std::istringstream stream(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) {
      const auto number = lines.size();
      out_ << (marks_changes_ && number < before_.size() ? highlight_changes(line, before_[number]) : line)
           << "\x1b[K\n";
      lines.push_back(std::move(line));
    }
    out_ << "\x1b[J" << std::flush;
    before_ = std::move(lines);
  }

 private:
  std::ostream& out_;
  const bool marks_changes_;
  std::vector<std::string> before_;
};

std::string notes_as_text(const device::Snapshot& snapshot) {
  std::string text;
  for (const auto& note : device_notes(snapshot)) text += note + '\n';
  return text;
}

int watch(device::Source& source, const Args& args, Context& context, std::ostream* record) {
  const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  std::optional<Screen> screen;
  if (is_terminal && has_escape_sequences(context.environment) && !args.json && !args.csv) {
    screen.emplace(context.out, wants_color(args.color, context.environment, is_terminal));
  }
  auto next = std::chrono::steady_clock::now();
  for (;;) {
    const auto snapshot = source.sample(want_of(args));
    if (record != nullptr) *record << device::to_json(snapshot).dump() << std::endl;
    const auto text = render(snapshot, args, output_width(context));
    if (screen) {
      const auto time = std::chrono::system_clock::to_time_t(snapshot.time);
      char clock[32] = {};
      std::tm local = {};
      std::strftime(clock, sizeof clock, "%F %T", localtime_r(&time, &local));
      screen->paint(fmt::format("{}  {}, every {} s\n\n{}{}", clock, printable(snapshot.host), args.watch_s, text,
                                notes_as_text(snapshot)));
    } else {
      context.out << text << (args.json || args.csv ? "" : "\n") << std::flush;
    }
    if (!context.out) return kExitOk;  // the reader has gone
    const auto interval =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(args.watch_s));
    next = std::max(next + interval, std::chrono::steady_clock::now());
    const auto pause = std::chrono::ceil<std::chrono::milliseconds>(next - std::chrono::steady_clock::now());
    poll(nullptr, 0, static_cast<int>(std::max<int64_t>(1, pause.count())));
  }
}

int run(const Args& args, Context& context) {
  if (args.json && args.csv) throw Error(ErrorCode::kInvalidArgument, "devices: choose one of --json and --csv");
  if (!(args.watch_s >= 0.05 && args.watch_s <= 86'400)) {
    throw Error(ErrorCode::kInvalidArgument, "devices: --watch {}: give seconds from 0.05 on", args.watch_s);
  }
  return with_source(args.device, context, [&](device::Source& source) {
    std::ofstream record;
    if (!args.record.empty()) {
      record.open(args.record);
      if (!record) throw system_error(errno, "devices: writing the recording " + args.record);
    }
    if (args.watch->count() > 0) return watch(source, args, context, record.is_open() ? &record : nullptr);
    const auto snapshot = source.sample(want_of(args));
    if (record.is_open()) {
      record << device::to_json(snapshot).dump() << std::endl;
      if (!record) throw system_error(errno, "devices: writing the recording " + args.record);
    }
    context.out << render(snapshot, args, output_width(context));
    print_notes(snapshot, context);
    return status_of(snapshot, args);
  });
}

}  // namespace

void add_devices(CLI::App& app, Context& context) {
  auto args = std::make_shared<Args>();  // CLI11 binds by reference; the callback keeps it alive
  auto* cmd = app.add_subcommand("devices", "List the devices of this machine and what they are doing")->alias("ls");
  cmd->add_option("-i,--id", args->ids, "Everything about these: indices, 0:1 for MIG, UUIDs, PCI bus ids, cpu")
      ->type_name("ID...");
  cmd->add_flag("-L,--list", args->list, "Index, UUID, PCI bus id and name alone");
  cmd->add_flag("--json", args->json, "Print JSON: all that is known");
  cmd->add_flag("--csv", args->csv, "Print CSV");
  args->watch = cmd->add_option("--watch", args->watch_s, "Repeat, and show what changed; every 2 s unless given")
                    ->type_name("SECONDS")
                    ->expected(0, 1);
  cmd->add_option("--record", args->record, "Write what is read to FILE, for --replay and bug reports")
      ->type_name("FILE");
  add_color_option(*cmd, args->color);
  add_device_options(*cmd, args->device);
  cmd->footer(
      examples("  yoke devices                    a table\n"
               "  yoke devices --watch 1          again every second, changes highlighted\n"
               "  yoke devices -i 0               everything about device 0\n"
               "  yoke devices --json | jq -r '.devices[] | select(.state == \"free\") | .index'\n"
               "  yoke devices --record bug.jsonl && yoke devices --replay bug.jsonl\n"
               "\n"
               "Exit status: 0 if there is a GPU (or what was asked for), 66 if there is none."));
  cmd->callback([args, &context] { context.exit_code = run(*args, context); });
}

}  // namespace yoke::cli

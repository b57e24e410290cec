// `yoke watch`: run a program, or watch a running one, and report at its end how well it used its devices.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/help/values.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/value.h"
#include "yoke/device/process/info.h"
#include "yoke/device/usage_sampling.h"
#include "yoke/program/watched_program.h"
#include "yoke/view/usage.h"

namespace yoke::cli {
namespace {

struct WatchArgs {
  DeviceOptions device;
  int64_t pid = 0;
  double interval_s = 0.5;
  double goal_percent = 90;
  std::string output, svg;
  bool json = false;
};

device::UsageSamplingOptions sampling_options(const WatchArgs& args, const Context& context, int64_t pid) {
  return {.pid = pid,
          .interval = device::Seconds(args.interval_s),
          .goal_percent = args.goal_percent,
          .environment = context.environment};
}

view::UsageNotes notes_of(const device::UsageSampling& sampling, const device::UsageReport& report,
                          const std::string& program) {
  view::UsageNotes notes{.program = program};
  const bool is_any_used = std::ranges::any_of(report.devices, [](const auto& usage) { return usage.was_used; });
  if (!sampling.has_gpu()) {
    notes.sentences.push_back("no GPU here; the numbers are of the machine's processors, whoever used them");
  } else if (!is_any_used) {
    notes.sentences.push_back(fmt::format(
        "the program was seen on no GPU{}; the numbers are of those visible to it, whoever used them",
        sampling.has_seen_strangers() ? " (processes of another PID namespace, as of containers, cannot be told apart)"
        : sampling.has_seen_silence() ? " (for some GPUs it is not known who used them)"
                                      : ""));
  }
  for (auto& sentence : view::remarks(report)) notes.sentences.push_back(std::move(sentence));
  return notes;
}

int64_t error_width(const Context& context) {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return output_width(context);
}

/// Throws if the report file cannot be written, before the program runs for hours in vain.
void require_writable(const std::string& file) {
  if (!file.empty() && !std::ofstream(file, std::ios::app)) throw system_error(errno, "writing " + file);
}

/// Whether the two names refer to one file, so that one report would overwrite the other. False for devices such as
/// /dev/null, which may be named twice.
bool is_same_file(const std::string& one, const std::string& other) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::exists(one, ignored) && !fs::is_regular_file(one, ignored)) return false;
  const auto canonical = fs::weakly_canonical(one, ignored);
  return !canonical.empty() && canonical == fs::weakly_canonical(other, ignored);
}

void write_file(const std::string& file, const std::string& text) {
  std::ofstream stream(file, std::ios::trunc);
  stream << text << std::flush;
  if (!stream) throw system_error(errno, "writing " + file);
}

void print_report(const device::UsageSampling& sampling, const WatchArgs& args, const std::string& program,
                  const Context& context) {
  const auto report = sampling.report();
  const auto notes = notes_of(sampling, report, program);
  if (!args.svg.empty()) write_file(args.svg, view::usage_svg(report, notes));
  const auto text = args.json ? json_page(view::usage_json(report, notes))
                              : view::usage_text(report, notes, args.output.empty() ? error_width(context) : 100);
  if (!args.output.empty()) return write_file(args.output, text);
  // The program may have left its last line unfinished.
  errno = 0;
  std::cerr << (args.json ? "" : "\nyoke watch: ") << text << std::flush;
  if (std::cerr) return;
  std::cerr.clear();
  throw system_error(errno, "writing the report to standard error");
}

int watch_program(const WatchArgs& args, Context& context, const std::function<void(int)>& finish) {
  const auto& argv = context.rest;
  const pid_t parent = getppid();  // read before the program runs, because later the parent may be killed at any time
  program::WatchedProgram program(argv);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  program::SignalMessages messages;
  const auto source = open_source(args.device);
  device::UsageSampling sampling(*source, sampling_options(args, context, program.pid()));
  if (const int error = program.start(); error != 0) {
    const auto failure = system_error(error, "cannot run " + argv[0]);
    std::cerr << "yoke watch: " << printable(failure.what()) << std::endl;
    return error == ENOENT ? 127 : 126;
  }
  sampling.start();
  const auto status = program::wait_for(program, messages, parent);
  if (!status) _exit(128 + SIGTERM);
  sampling.stop();
  const int written = report_errors(context, [&] {
    print_report(sampling, args, fmt::format("{}", fmt::join(argv, " ")), context);
    return kExitOk;
  });
  const int result = *status == 0 ? written : *status;
  if (source->has_stuck_worker()) finish(result);
  return result;
}

int watch_process(const WatchArgs& args, Context& context, const std::function<void(int)>& finish) {
  const auto info = device::describe_process(args.pid);
  if (!info.is_visible.value_or(false)) throw Error(ErrorCode::kNotFound, "there is no process {} here", args.pid);
  program::SignalMessages messages;
  const auto source = open_source(args.device);
  device::UsageSampling sampling(*source, sampling_options(args, context, args.pid));
  sampling.start();
  program::wait_for_process(args.pid, info, messages);
  sampling.stop();
  print_report(sampling, args, fmt::format("process {} ({})", args.pid, info.name), context);
  if (source->has_stuck_worker()) finish(kExitOk);
  return kExitOk;
}

int run_watch(const WatchArgs& args, Context& context) {
  if (context.rest.empty() == (args.pid == 0)) {
    refuse("give a program, as in `yoke watch -- python train.py`, or --pid");
  }
  if (!args.svg.empty() && is_same_file(args.output, args.svg)) {
    refuse("--output and --svg both name {}; give two files", args.svg);
  }
  require_writable(args.output);
  require_writable(args.svg);
  return attempt_in_child(context, [&](const std::function<void(int)>& finish) {
    return args.pid != 0 ? watch_process(args, context, finish) : watch_program(args, context, finish);
  });
}

}  // namespace

void add_watch(CLI::App& cmd, Context& context) {
  auto& args = add_args<WatchArgs>(cmd, context, run_watch);
  add_value(cmd, "--pid", args.pid, "PID", "Watch a process that runs already, until it ends or Ctrl-C")
      ->check(in_range(1, 4194304));
  add_number(cmd, "--interval", args.interval_s, {"SECONDS", 0.05, 3600}, "Time between two samples");
  add_number(cmd, "--goal", args.goal_percent, {"PERCENT", 0, 100},
             "Tell how much of the time utilisation was under this");
  add_value(cmd, "-o,--output", args.output, "FILE", "Write the report to FILE instead of standard error");
  cmd.add_flag("--json", args.json, "The report as JSON");
  add_value(cmd, "--svg", args.svg, "FILE", "Draw the timelines into FILE");
  add_device_options(cmd, args.device);
  cmd.remove_option(cmd.get_option("--replay"));  // a recording does not contain running programs
  add_program(cmd, "PROGRAM", "What to run, with its arguments; every word from here on is its own");
  cmd.footer(
      examples("  yoke watch -- python train.py                 a report after the program's output\n"
               "  yoke watch --svg use.svg -- yoke run -n gpu -- ./train\n"
               "  yoke watch --json -o use.json -- ./train      for other programs\n"
               "  yoke watch --pid 4121                         one that runs already\n"
               "\n"
               "The exit status is the program's: 128 and the signal's number if a signal ended it,\n"
               "127 if it is not found. With --pid it is 0."));
}

}  // namespace yoke::cli

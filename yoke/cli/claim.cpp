// `yoke claim`: take devices for oneself while a program runs, for a time, or while a process lives.
#include "yoke/cli/options/claim.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/moment.h"
#include "yoke/base/process.h"
#include "yoke/base/quantity.h"
#include "yoke/base/text.h"
#include "yoke/base/user_socket.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/shell.h"
#include "yoke/cli/help/values.h"
#include "yoke/device/process/info.h"
#include "yoke/keep/claim_keeper.h"
#include "yoke/program/watched_program.h"

namespace yoke::cli {
namespace {

struct ClaimArgs {
  DeviceOptions device;
  std::optional<int64_t> num_devices;
  std::string memory, name, length, wait;
  std::optional<int64_t> adopted_pid;
  bool share = false, backfill = false, explain = false, json = false;

  bool is_dry(const Context& context) const {
    return context.rest.empty() && length.empty() && !adopted_pid && explain;
  }
};

void check_claim(const ClaimArgs& args, const Context& context) {
  const auto refuse = [](const char* why) { throw Error(ErrorCode::kInvalidArgument, "{}", why); };
  const bool has_program = !context.rest.empty();
  if (has_program && args.adopted_pid) refuse("--adopt is for a process that runs already; leave out the program");
  if (args.adopted_pid && (args.num_devices || !args.device.chosen.empty())) {
    refuse("--adopt takes the devices that the process uses; leave out -n and --device");
  }
  if (!has_program && args.length.empty() && !args.adopted_pid && !args.explain) {
    refuse("say for what: a program, as in `yoke claim -n 2 -- python train.py`, or a time, as in --for 4h");
  }
  if (args.share && args.memory.empty()) refuse("--share needs to know how much of each device; give --memory");
  if (args.share && args.adopted_pid) refuse("--adopt takes whole devices; leave out --share");
  if (args.backfill && args.length.empty()) refuse("--backfill needs to know how long it takes; give --for");
  if (args.json && (has_program || args.is_dry(context))) {
    refuse("--json prints what is held without a program; give --for or --adopt");
  }
}

/// Whether a shell may evaluate what is printed, so that failures must not be silent there. A terminal does not.
bool is_for_shell(const ClaimArgs& args, const Context& context) {
  return context.rest.empty() && !args.json && !args.is_dry(context) && isatty(STDOUT_FILENO) == 0;
}

AcquireOptions to_options(const ClaimArgs& args, const claim::SiteConfig& config, const Context& context) {
  AcquireOptions options{.device = args.device, .adopted_pid = args.adopted_pid, .explains = args.explain};
  auto& request = options.request;
  const bool counts_names = !args.device.chosen.empty();  // -d 0,1 alone means both
  request.wish.num_devices = args.num_devices.value_or(counts_names ? 0 : 1);
  if (!args.memory.empty()) {
    request.wish.memory_bytes = parse_memory(args.memory);
    if (!request.wish.memory_bytes) {
      throw Error(ErrorCode::kInvalidArgument, "--memory {}: give a size with its unit, such as 20GiB", args.memory);
    }
  }
  request.wish.is_share = args.share;
  request.takes_used = args.adopted_pid.has_value();
  request.goes_ahead = args.backfill;
  request.is_dry = args.is_dry(context);
  // To ask what would be given needs no time, though a site may limit it.
  if (!request.is_dry) request.length = length_of_claim(args.length, config);
  request.note.purpose = args.name;
  if (args.name.empty()) request.note.purpose = purpose_of(context.rest);
  options.waits = !args.wait.empty();
  if (options.waits && args.wait != "forever") options.wait_limit = length_of("--wait", args.wait);
  return options;
}

int run_program(const AcquireOptions& options, const ClaimSite& site, Context& context) {
  if (!find_program(context.rest[0], context.environment)) {
    std::cerr << speaker(context) << "there is no program " << printable(context.rest[0]) << " in PATH" << std::endl;
    constexpr int kNoProgram = 127;
    return kNoProgram;
  }
  int status = kExitOk;
  auto acquired = acquire(options, site, context, status);
  if (!acquired) return status;
  return keep_for_program(*acquired, options, site, context);
}

// ---- without a program ----------------------------------------------------------------------------------------------

/// A process that is to be adopted.
struct Adopted {
  UniqueFd fd;  ///< A pidfd.
  int64_t start_ticks = 0;
};

Adopted open_adopted(int64_t pid) {
  Adopted result;
  if (pid > 0) result.fd = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0U)));
  const auto info = device::describe_process(pid);  // after the pidfd, so that both are about one process
  if (!result.fd || !info.start_ticks) throw Error(ErrorCode::kNotFound, "there is no process {}", pid);
  if (geteuid() != 0 && info.uid != int64_t{geteuid()}) {
    throw Error(ErrorCode::kPermissionDenied, "process {} belongs to {}; only that user or root may claim for it", pid,
                printable(info.user));
  }
  result.start_ticks = *info.start_ticks;
  return result;
}

std::string end_text(const claim::Note& note, const ClaimArgs& args) {
  if (note.until) {
    return " until " + moment_text(*note.until);
  }
  return args.adopted_pid ? fmt::format(" until process {} ends", *args.adopted_pid) : "";
}

std::string to_json(const Acquired& acquired) {
  using Json = nlohmann::ordered_json;
  const auto& note = acquired.allocation.claim->note();
  Json json = {{"pid", note.pid}, {"devices", acquired.allocation.ids}};
  json["until"] = note.until ? Json(std::chrono::system_clock::to_time_t(*note.until)) : Json();
  json["environment"] = Json::object();
  for (const auto& [name, value] : acquired.assignments) json["environment"][name] = value ? Json(*value) : Json();
  return json.dump(2) + "\n";
}

/// Leaves terminal, streams and folder of the user, and lives on without the process that started it.
void detach() {
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null.value(), stream);
  [[maybe_unused]] const int changed = chdir("/");
  prctl(PR_SET_NAME, "yoke-claim");
  prctl(PR_SET_PDEATHSIG, 0);
}

/// How the holder and the command that started it talk. The holder reports what it holds; the command answers with a
/// byte when the user has been told.
struct HolderTalk {
  UniqueFd report, answer;
};

/// Runs in the holder. Returns its exit status.
int hold(const ClaimArgs& args, AcquireOptions options, const ClaimSite& site, Context& context, HolderTalk talk) {
  Adopted adopted;
  if (args.adopted_pid) adopted = open_adopted(*args.adopted_pid);
  options.request.note.is_holder = true;
  options.in_reader = [&talk] { talk = {}; };  // or the end of the report would not be seen
  if (options.request.note.purpose.empty() && args.adopted_pid) {
    const auto command = device::describe_process(*args.adopted_pid).command;
    const auto words = words_of(command);
    options.request.note.purpose = purpose_of({words.begin(), words.end()});
  }
  int status = kExitOk;
  auto acquired = acquire(options, site, context, status);
  if (!acquired) return status;
  auto& claim = *acquired->allocation.claim;
  if (args.adopted_pid) {
    auto note = claim.note();
    note.program_pid = *args.adopted_pid;
    note.program_start_ticks = adopted.start_ticks;
    claim.write(note);
  }
  const auto text = args.json ? to_json(*acquired) : args.adopted_pid ? "" : to_shell(acquired->assignments);
  std::cerr << fmt::format("{}process {} holds {} {}{}; `yoke release {}` gives {} back\n", speaker(context), getpid(),
                           acquired->allocation.ids.size() == 1 ? "device" : "devices",
                           fmt::join(acquired->allocation.ids, ", "), end_text(claim.note(), args), getpid(),
                           acquired->allocation.ids.size() == 1 ? "it" : "them")
            << std::flush;
  detach();
  const auto message = "+" + text;
  write_all(talk.report.value(), std::as_bytes(std::span(message)), "the report of the holder");
  talk.report.reset();
  // Nobody learns what a claim is for whose words were lost, so it ends.
  char byte = 0;
  while (read(talk.answer.value(), &byte, 1) < 0 && errno == EINTR) {
  }
  if (byte == 0) return kExitOk;
  talk.answer.reset();
  acquired->wakeup.reset();
  keep::UseWatch watch(claim, watch_options(options, site, acquired->allocation.ids));
  keep::keep_for_a_time(claim, adopted.fd, speaker(context), watch);
  return kExitOk;
}

/// Starts the holder, and prints what it reports. The holder itself takes the locks, so that the kernel names it.
int start_holder(const ClaimArgs& args, const AcquireOptions& options, const ClaimSite& site, Context& context) {
  auto report = make_pipe(), answer = make_pipe();
  context.out.flush();
  const pid_t parent = getpid();
  const pid_t holder = fork();
  if (holder < 0) throw system_error(errno, "starting the process that holds the devices");
  if (holder == 0) {
    report.read_end.reset();
    answer.write_end.reset();
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // until it holds the devices
    if (getppid() != parent) _exit(1);
    const int status = report_errors(context, [&] {
      return hold(args, options, site, context, {std::move(report.write_end), std::move(answer.read_end)});
    });
    _exit(status);
  }
  report.write_end.reset();
  answer.read_end.reset();
  program::SignalMessages messages;  // an interrupted command has a status for the shell, too
  std::string text;
  for (bool is_open = true; is_open;) {
    pollfd news[] = {{report.read_end.value(), POLLIN, 0}, {messages.fd(), POLLIN, 0}};
    poll(news, 2, -1);
    while (const auto message = messages.next()) {
      if (message->signal != SIGCHLD) return 128 + message->signal;  // the holder ends with this process
    }
    if (news[0].revents == 0) continue;
    char buffer[4096];
    const auto count = read(report.read_end.value(), buffer, sizeof buffer);
    if (count > 0) text.append(buffer, static_cast<size_t>(count));
    is_open = count > 0 || (count < 0 && errno == EINTR);
  }
  if (text.empty()) return wait_for_child(holder);
  context.out << text.substr(1) << std::flush;
  if (!context.out) return kExitOk;  // report_errors() says why
  if (!args.json && !args.adopted_pid && isatty(STDOUT_FILENO) != 0) {
    std::cerr << speaker(context)
              << "this shell has them with these lines, or at once with eval \"$(yoke claim ...)\"\n";
  }
  constexpr char kTold = 1;
  [[maybe_unused]] const auto count = write(answer.write_end.value(), &kTold, 1);
  return kExitOk;
}

int run_claim(const ClaimArgs& args, Context& context) {
  check_claim(args, context);
  const auto site = open_claim_site(context, SiteUse::kTake);
  const auto options = to_options(args, site.config, context);
  if (!context.rest.empty()) return run_program(options, site, context);
  if (!args.is_dry(context)) return start_holder(args, options, site, context);
  int status = kExitOk;
  acquire(options, site, context, status);
  return status;
}

/// A shell that evaluates nothing would go on and see all devices, which belong to others.
int run_claim_for_shell(const ClaimArgs& args, Context& context) {
  const int status = report_errors(context, [&] { return run_claim(args, context); });
  if (status != kExitOk) context.out << failure_to_shell(status) << std::flush;
  return status;
}

}  // namespace

void add_claim(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<ClaimArgs>();  // CLI11 keeps references to it; the callback owns it
  auto program = std::make_shared<std::vector<std::string>>();
  cmd.add_option("-n,--num-devices", args->num_devices, "How many devices; 1 unless --device names some")
      ->type_name("N")
      ->check(in_range(1, 128, "devices"));
  add_device_choice(cmd, args->device.chosen, "-d,--device",
                    "Take them from these only: ids as in `yoke devices` (0, 0-3, 1:0 for MIG, UUIDs)",
                    ChoiceForm::kOneWord);
  cmd.add_option("--memory", args->memory, "Memory that must be free on each device, such as 20GiB")->type_name("SIZE");
  cmd.add_flag("--share", args->share,
               "Share the devices with others who do this; --memory says how much of each is used");
  cmd.add_option("--name", args->name, "What it is for; `yoke claims` shows it to everybody")->type_name("TEXT");
  cmd.add_option("--for", args->length, "How long: 90s, 30m, 4h, 1d12h. A program is then ended (SIGTERM)")
      ->type_name("TIME");
  cmd.add_option("--wait", args->wait, "Queue until devices are free, for at most TIMEOUT (10m, 2h)")
      ->type_name("[TIMEOUT]");
  cmd.add_flag("--backfill", args->backfill,
               "Start before those who wait where that does not delay the first of them; needs --for");
  cmd.add_option("--adopt", args->adopted_pid, "Claim the devices that this process uses, until it ends")
      ->type_name("PID");
  cmd.add_flag("--explain", args->explain, "Say why these devices; without a program and --for, take nothing");
  cmd.add_flag("--json", args->json, "With --for or --adopt and no program: print JSON");
  cmd.add_option("--deadline", args->device.deadline_s, "How long drivers may take to answer")
      ->type_name("SECONDS")
      ->check(in_range(0.001, 86'400, "seconds"))
      ->capture_default_str();
  cmd.add_option("PROGRAM", *program, "What to run with them, and its arguments; every word from here on is its own")
      ->type_name(kProgramArguments)
      ->expected(0, -1);
  cmd.footer(
      examples("  yoke claim -n 2 -- python train.py         two devices while the program runs\n"
               "  yoke claim -n 2 --wait -- python train.py  wait in the queue for them\n"
               "  yoke claim -n 4 --wait 30m -- yoke run -n 4 -- ./train\n"
               "  eval \"$(yoke claim -n 2 --for 4h)\"         for all that follows in this shell\n"
               "  yoke claim --memory 8GiB --share -- jupyter lab    a part of a device, for small work\n"
               "  yoke claim --adopt 4121                    for a process that runs already\n"
               "  yoke claim -n 4 --explain                  what would be taken now, and why\n"
               "\n"
               "Exit status: the program's; 75 if not enough devices are free, 124 if the wait took too long,\n"
               "69 if this machine does not have so many, 127 if the program is not found."));
  cmd.callback([args, program, &context] {
    context.exit_code = is_for_shell(*args, context) ? run_claim_for_shell(*args, context) : run_claim(*args, context);
  });
}

}  // namespace yoke::cli

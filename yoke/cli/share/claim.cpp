// `yoke claim`: take devices for oneself while a program runs, for a time, or while a process lives.
#include "yoke/cli/options/claim.h"

#include <unistd.h>

#include <iostream>
#include <memory>

#include "yoke/base/json.h"
#include "yoke/base/process.h"
#include "yoke/base/quantity.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/shell.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/value.h"
#include "yoke/keep/hold.h"
#include "yoke/keep/run.h"

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

keep::AcquireOptions to_options(const ClaimArgs& args, const claim::SiteConfig& config, const Context& context) {
  keep::AcquireOptions options{.device = {.chosen = args.device.chosen, .deadline_s = args.device.deadline_s},
                               .adopted_pid = args.adopted_pid};
  auto& request = options.request;
  const bool counts_names = !args.device.chosen.empty();  // -d 0,1 alone means both
  request.wish.num_devices = args.num_devices.value_or(counts_names ? 0 : 1);
  if (!args.memory.empty()) {
    request.wish.memory_bytes = parse_memory(args.memory);
    if (!request.wish.memory_bytes) refuse("--memory {}: give a size with its unit, such as 20GiB", args.memory);
  }
  request.wish.is_share = args.share;
  request.takes_used = args.adopted_pid.has_value();
  request.goes_ahead = args.backfill;
  request.is_dry = args.is_dry(context);
  // To ask what would be given needs no time, though a site may limit it.
  if (!request.is_dry) request.length = length_of_claim(args.length, config);
  request.note.purpose = args.name;
  if (args.name.empty()) request.note.purpose = keep::purpose_of(context.rest);
  options.waits = !args.wait.empty();
  if (options.waits && args.wait != "forever") options.wait_limit = length_of("--wait", args.wait);
  return options;
}

int run_program(const keep::AcquireOptions& options, const ClaimSite& site, Reasons reasons, Context& context) {
  if (!find_program(context.rest[0], context.environment)) {
    std::cerr << speaker(context) << "there is no program " << printable(context.rest[0]) << " in PATH" << std::endl;
    constexpr int kNoProgram = 127;
    return kNoProgram;
  }
  int status = kExitOk;
  auto acquired = acquire(options, site, context, status, reasons);
  return acquired ? keep::run(*acquired, context.rest, context.environment, teller(context)) : status;
}

std::string to_json(const keep::Acquired& acquired) {
  const auto& note = acquired.allocation.claim->note();
  Json json = {{"pid", note.pid}, {"devices", acquired.allocation.ids}};
  json["until"] = note.until ? Json(std::chrono::system_clock::to_time_t(*note.until)) : Json();
  json["environment"] = Json::object();
  for (const auto& [name, value] : acquired.assignments) json["environment"][name] = value ? Json(*value) : Json();
  return json_page(json);
}

/// Without a program: a process in the background holds the devices, and what it reports is printed.
int hold(const ClaimArgs& args, const keep::AcquireOptions& options, const ClaimSite& site, Reasons reasons,
         Context& context) {
  context.out.flush();
  auto holder = keep::start_holder(options, site, context.environment, teller(context, reasons),
                                   [&](const keep::Acquired& acquired) -> std::string {
                                     if (args.json) return to_json(acquired);
                                     return args.adopted_pid ? "" : to_shell(acquired.assignments);
                                   });
  if (holder.status != 0) return holder.status;
  context.out << holder.report << std::flush;
  if (!context.out) return kExitOk;  // report_errors() says why
  if (!args.json && !args.adopted_pid && isatty(STDOUT_FILENO) != 0) {
    std::cerr << speaker(context)
              << "this shell has them with these lines, or at once with eval \"$(yoke claim ...)\"\n";
  }
  holder.confirm();
  return kExitOk;
}

int run_claim(const ClaimArgs& args, Context& context) {
  check_claim(args, context);
  const auto site = open_claim_site(context, SiteUse::kTake);
  const auto options = to_options(args, site.config, context);
  const auto reasons = !args.explain ? Reasons::kNowhere : args.is_dry(context) ? Reasons::kOutput : Reasons::kError;
  if (!context.rest.empty()) return run_program(options, site, reasons, context);
  if (!args.is_dry(context)) return hold(args, options, site, reasons, context);
  int status = kExitOk;
  acquire(options, site, context, status, reasons);
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
  add_number(cmd, "-n,--num-devices", args->num_devices, {"N", 1, 128, "devices"},
             "How many devices; 1 unless --device names some");
  add_device_choice(cmd, args->device.chosen, "-d,--device",
                    "Take them from these only: ids as in `yoke devices` (0, 0-3, 1:0 for MIG, UUIDs)",
                    ChoiceForm::kOneWord);
  add_value(cmd, "--memory", args->memory, "SIZE", "Memory that must be free on each device, such as 20GiB");
  cmd.add_flag("--share", args->share,
               "Share the devices with others who do this; --memory says how much of each is used");
  add_value(cmd, "--name", args->name, "TEXT", "What it is for; `yoke claims` shows it to everybody");
  add_value(cmd, "--for", args->length, "TIME", "How long: 90s, 30m, 4h, 1d12h. A program is then ended (SIGTERM)");
  add_value(cmd, "--wait", args->wait, "[TIMEOUT]", "Queue until devices are free, for at most TIMEOUT (10m, 2h)");
  cmd.add_flag("--backfill", args->backfill,
               "Start before those who wait where that does not delay the first of them; needs --for");
  add_value(cmd, "--adopt", args->adopted_pid, "PID", "Claim the devices that this process uses, until it ends");
  cmd.add_flag("--explain", args->explain, "Say why these devices; without a program and --for, take nothing");
  cmd.add_flag("--json", args->json, "With --for or --adopt and no program: print JSON");
  add_deadline(cmd, args->device.deadline_s);
  add_program(cmd, "PROGRAM", "What to run with them, and its arguments; every word from here on is its own");
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
  cmd.callback([args, &context] {
    context.exit_code = is_for_shell(*args, context) ? run_claim_for_shell(*args, context) : run_claim(*args, context);
  });
}

}  // namespace yoke::cli

// `yoke release`: give devices back that a holder keeps.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <csignal>
#include <memory>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/options/claim.h"
#include "yoke/device/process/signal.h"

namespace yoke::cli {
namespace {

struct ReleaseArgs {
  std::vector<std::string> claims;
  bool mine = false;
  bool force = false;
};

constexpr std::chrono::seconds kReleaseLimit{10};

/// Checks everything before the first claim is released.
void check_release(const claim::HeldNote& held, const ReleaseArgs& args) {
  if (geteuid() != 0 && held.uid != int64_t{geteuid()}) {
    throw Error(ErrorCode::kPermissionDenied,
                "the claim of process {} belongs to {}; only that user or root may end it", held.pid.value_or(0),
                printable(device::user_name(held.uid)));
  }
  if (!held.pid || !held.note) {
    throw Error(ErrorCode::kFailedPrecondition,
                "the process that holds the claim {} cannot be seen from here; end its program", printable(held.name));
  }
  if (!held.note->is_holder && !args.force) {
    throw Error(ErrorCode::kFailedPrecondition,
                "the claim of process {} is for a program that runs ({}), and ends with it; --force ends the program",
                *held.pid, printable(held.note->purpose));
  }
}

void release(const claim::HeldNote& held, Context& context) {
  const auto& note = *held.note;
  const bool is_parent = held.pid == note.pid;  // otherwise the program has outlived it
  const device::ProcessHandle process(*held.pid, is_parent ? note.start_ticks : note.program_start_ticks);
  process.signal(SIGTERM);
  if (!process.wait_for_end(kReleaseLimit)) {
    throw Error(ErrorCode::kTimeout, "process {} got SIGTERM and has not ended after {} s; it still has its devices",
                *held.pid, kReleaseLimit.count());
  }
  context.out << fmt::format("released {}\n", fmt::join(note.keys, ", "));
}

int run_release(const ReleaseArgs& args, Context& context) {
  if (args.claims.empty() && !args.mine) {
    throw Error(ErrorCode::kInvalidArgument, "which claim? Give a PID of `yoke claims`, or --mine for all of yours");
  }
  const auto site = open_claim_site(context);
  const auto survey = look_at_claims(site, context);
  const auto found = find_claims(survey, args.claims, args.mine);
  if (found.empty()) {
    context.out << "no device is claimed by you\n";
    return kExitOk;
  }
  // --mine alone leaves out what programs still use. A claim that was named is refused instead.
  const auto is_kept = [&](const claim::HeldNote* held) {
    return args.claims.empty() && !args.force && held->note && !held->note->is_holder;
  };
  for (const auto* held : found) {
    if (!is_kept(held)) check_release(*held, args);
  }
  for (const auto* held : found) {
    if (!is_kept(held)) {
      release(*held, context);
      continue;
    }
    context.out << fmt::format("process {} keeps its devices until its program ends; --force ends it\n",
                               held->pid.value_or(0));
  }
  return kExitOk;
}

}  // namespace

void add_release(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<ReleaseArgs>();  // CLI11 keeps references to it; the callback owns it
  cmd.add_option("CLAIM", args->claims, "PIDs of `yoke claims`, or UUIDs of devices")->type_name("[CLAIM...]");
  cmd.add_flag("--mine", args->mine, "All claims of yours");
  cmd.add_flag("-f,--force", args->force, "Also claims whose program still runs, which gets SIGTERM");
  cmd.footer(
      examples("  yoke release 4121            what process 4121 holds\n"
               "  yoke release --mine          everything of yours that no program is using\n"
               "\n"
               "Exit status: 0; 66 if there is no such claim, 77 if it belongs to somebody else, 69 if its program\n"
               "runs, 124 if it does not end."));
  cmd.callback([args, &context] { context.exit_code = run_release(*args, context); });
}

}  // namespace yoke::cli

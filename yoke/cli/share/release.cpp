// `yoke release`: give devices back that a holder keeps.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/claim/kernel_locks.h"
#include "yoke/cli/command.h"
#include "yoke/cli/options/claim.h"
#include "yoke/cli/options/value.h"
#include "yoke/device/process/signal.h"

namespace yoke::cli {
namespace {

struct ReleaseArgs {
  std::vector<std::string> claims;
  bool mine = false;
  bool force = false;
};

/// A holder ends at once. A program may take ten seconds until it gets SIGKILL, and a container is removed after that.
std::chrono::seconds limit_of(const claim::Note& note) {
  if (note.is_holder) return std::chrono::seconds(10);
  return std::chrono::seconds(note.heirs.empty() ? 20 : 45);
}

/// What is not known of a note whose text cannot be read is as for a program that runs.
claim::Note note_of(const claim::HeldNote& held) { return held.note.value_or(claim::Note()); }

/// The processes of the claim's user that end it.
std::vector<claim::Keeper> keepers(const claim::HeldNote& held, const ClaimSite& site) {
  const auto is_of_user = [&](const claim::ProcessFacts& facts) {
    return facts.real_uid == held.uid || facts.effective_uid == held.uid;
  };
  auto named = keepers_of(note_of(held), [&](const claim::Keeper& keeper) {
    const auto facts = claim::process_facts(static_cast<pid_t>(keeper.pid));
    return keeper.pid > 0 && facts && facts->start_ticks == keeper.start_ticks && is_of_user(*facts);
  });
  if (std::ranges::find(named, int64_t{held.locker}, &claim::Keeper::pid) != named.end()) return named;
  // The note may name no process, or others of its user. The kernel knows which one took the lock.
  const auto facts = claim::process_facts(held.locker);
  struct stat status {};
  if (!facts || !facts->start_ticks || !is_of_user(*facts)) return named;
  if (!site.ledger.folder().open_existing(held.name, 0, &status)) return named;
  if (!claim::has_open(held.locker, status.st_ino).value_or(false)) return named;  // it has ended
  return {{held.locker, *facts->start_ticks}};
}

/// Checks everything before the first claim is released.
void check_release(const claim::HeldNote& held, const ClaimSite& site, const ReleaseArgs& args) {
  if (geteuid() != 0 && held.uid != int64_t{geteuid()}) {
    throw Error(ErrorCode::kPermissionDenied,
                "the claim of process {} belongs to {}; only that user or root may end it", held.pid.value_or(0),
                printable(device::user_name(held.uid)));
  }
  if (keepers(held, site).empty()) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        "the process that holds the claim {} cannot be seen from here; end its program (as root, `fuser -v {}` names "
        "processes that have it open)",
        printable(held.name), printable(site.ledger.folder().path_of(held.name).string()));
  }
  if (!note_of(held).is_holder && !args.force) {
    throw Error(ErrorCode::kFailedPrecondition,
                "the claim of process {} is for a program that runs ({}), and ends with it; --force ends the program",
                held.pid.value_or(0), printable(note_of(held).purpose));
  }
}

/// Waits until no process holds the claim any more.
bool wait_for_release(const claim::HeldNote& held, const ClaimSite& site, std::chrono::seconds limit) {
  constexpr std::chrono::milliseconds kPause(20);
  const auto until = std::chrono::steady_clock::now() + limit;
  while (site.ledger.is_held(held)) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

void signal_all(const std::vector<claim::Keeper>& keepers, int signal) {
  for (const auto& keeper : keepers) {
    try {
      device::ProcessHandle(keeper.pid, keeper.start_ticks).signal(signal);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotFound) throw;  // it has ended meanwhile
    }
  }
}

void release(const claim::HeldNote& held, const ClaimSite& site, Context& context) {
  const auto note = note_of(held);
  const auto told = keepers(held, site);
  try {
    if (!note.is_holder) site.ledger.force(held);
  } catch (const Error& error) {  // it has ended, or its text cannot be written; the signal is sent in any case
    if (error.code() == ErrorCode::kPermissionDenied) throw;
  }
  signal_all(told, SIGTERM);
  signal_all(told, SIGCONT);  // a stopped process acts on SIGTERM only when it goes on
  const auto limit = limit_of(note);
  // `yoke claim` was killed, or something else has locked the note.
  const bool is_other = !told.empty() && told[0].pid == held.locker && told[0].pid != note.pid;
  const bool is_program = is_other || (told.size() == 1 && told[0].pid == note.program_pid);
  bool is_over = false;
  if (is_program) {
    is_over = wait_for_release(held, site, std::chrono::seconds(10));
    if (!is_over) signal_all(told, SIGKILL);
  }
  if (!is_over && !wait_for_release(held, site, limit)) {
    throw Error(ErrorCode::kTimeout, "process {} got SIGTERM, and {} still claimed after {} s",
                told.empty() ? held.pid.value_or(0) : told[0].pid,
                note.keys.size() == 1 ? "its device is" : "its devices are", limit.count());
  }
  context.out << printable(fmt::format("released {}", fmt::join(note.keys, ", "))) << '\n';
}

int run_release(const ReleaseArgs& args, Context& context) {
  if (args.claims.empty() && !args.mine) refuse("which claim? Give a PID of `yoke claims`, or --mine for all of yours");
  const auto site = open_claim_site(context, SiteUse::kLook);
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
    if (!is_kept(held)) check_release(*held, site, args);
  }
  size_t num_kept = 0;
  for (const auto* held : found) {
    if (!is_kept(held)) {
      release(*held, site, context);
      continue;
    }
    ++num_kept;
    context.out << fmt::format("process {} keeps its devices until its program ends; --force ends it\n",
                               held->pid.value_or(0));
  }
  return num_kept == found.size() ? exit_status(ErrorCode::kFailedPrecondition) : kExitOk;
}

}  // namespace

void add_release(CLI::App& cmd, Context& context) {
  auto& args = add_args<ReleaseArgs>(cmd, context, run_release);
  add_value(cmd, "CLAIM", args.claims, "[CLAIM...]", "PIDs of `yoke claims`, or UUIDs of devices");
  cmd.add_flag("--mine", args.mine, "All claims of yours");
  cmd.add_flag("-f,--force", args.force,
               "Also claims whose program still runs: it and all that it has started get SIGTERM, then SIGKILL");
  cmd.footer(
      examples("  yoke release 4121            what process 4121 holds\n"
               "  yoke release --mine          everything of yours that no program is using\n"
               "\n"
               "Exit status: 0; 66 if there is no such claim, 77 if it belongs to somebody else, 69 if its program\n"
               "runs (with --mine, if the programs of all claims run), 124 if it does not end."));
}

}  // namespace yoke::cli

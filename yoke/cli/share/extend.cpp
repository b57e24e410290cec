// `yoke extend`: put off the end of a claim.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/moment.h"
#include "yoke/claim/reservation.h"
#include "yoke/cli/command.h"
#include "yoke/cli/options/claim.h"
#include "yoke/cli/options/device.h"

namespace yoke::cli {
namespace {

struct ExtendArgs {
  std::vector<std::string> claims;
  bool mine = false;
  DeviceOptions device;
  std::string length;
};

/// Errors  kFailedPrecondition: devices of the claim are reserved by somebody else before `until`.
void check_reservations(const claim::Survey& survey, const claim::HeldNote& held, claim::Time until,
                        const ClaimSite& site, const std::vector<claim::Candidate>& candidates) {
  const auto now = std::chrono::system_clock::now();
  const auto reservations =
      honoured_reservations(site.ledger, survey, site.config, static_cast<int64_t>(candidates.size()), now);
  auto extended = survey;
  for (auto& note : extended.notes) {
    if (note.name == held.name && note.note) note.note->until = until;
  }
  const auto leave_of = [&](const claim::Survey& at) {
    return find_leave(reservations, at, availability_of(candidates, at, now), held.uid, until, now);
  };
  const auto leave = leave_of(extended);
  const claim::Reservation* conflict = nullptr;
  if (leave.first && leave.most < std::min<int64_t>(leave_of(survey).most, 0)) conflict = &reservations[*leave.first];
  for (const auto& key : held.note->keys) {
    const auto reserved = leave.reserved_keys.find(claim::key_in_name(key));
    if (reserved != leave.reserved_keys.end()) conflict = &reservations[reserved->second];
  }
  if (conflict == nullptr) return;
  throw Error(ErrorCode::kFailedPrecondition, "{}, so the claim of process {} cannot last until {}",
              reservation_text(*conflict), held.pid.value_or(0), moment_text(until));
}

/// `candidates`: the devices of this machine; empty if nothing is reserved.
int extend(const ExtendArgs& args, std::chrono::seconds length, const ClaimSite& site,
           const std::vector<claim::Candidate>& candidates, Context& context) {
  const auto survey = look_at_claims(site, context);
  const auto found = find_claims(survey, args.claims, args.mine);
  if (found.empty()) throw Error(ErrorCode::kNotFound, "no device is claimed by you");
  for (const auto* held : found) {
    if (!held->note || !held->note->until) {
      throw Error(ErrorCode::kFailedPrecondition, "the claim of process {} has no end that could be put off",
                  held->pid.value_or(0));
    }
    const auto until = *held->note->until + length;
    if (geteuid() != 0 && site.config.longest && until - held->note->since > *site.config.longest) {
      throw Error(ErrorCode::kFailedPrecondition, "{} limits claims to {} in all, and this one began {} ago",
                  claim::limiter(site.config.is_own_longest), format_duration(*site.config.longest),
                  format_duration(std::chrono::system_clock::now() - held->note->since));
    }
    check_reservations(survey, *held, until, site, candidates);
    site.ledger.extend(*held, until);
    context.out << fmt::format("process {} has its devices until {}\n", held->pid.value_or(0), moment_text(until));
  }
  return kExitOk;
}

int run_extend(const ExtendArgs& args, Context& context) {
  if (args.claims.empty() && !args.mine) refuse("which claim? Give a PID of `yoke claims`, or --mine for all of yours");
  if (args.length.empty()) refuse("for how much longer? Give --for, as in `yoke extend 4121 --for 2h`");
  const auto length = length_of("--for", args.length);
  const auto site = open_claim_site(context, SiteUse::kTake);
  if (read_reservations(site.ledger.records()).empty()) return extend(args, length, site, {}, context);
  return with_source(args.device, context, [&](device::Source& source) {
    return extend(args, length, site, claim::candidates_of(source.sample({}), {}), context);
  });
}

}  // namespace

void add_extend(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<ExtendArgs>();  // CLI11 keeps references to it; the callback owns it
  cmd.add_option("CLAIM", args->claims, "PIDs of `yoke claims`, or UUIDs of devices")->type_name("[CLAIM...]");
  cmd.add_flag("--mine", args->mine, "All claims of yours");
  cmd.add_option("--for", args->length, "How much longer: 30m, 4h, 1d12h")->type_name("TIME");
  add_deadline(cmd, args->device.deadline_s);
  cmd.footer(
      examples("  yoke extend 4121 --for 2h      two hours more than it was claimed for\n"
               "\n"
               "Exit status: 0; 66 if there is no such claim, 77 if it belongs to somebody else, 69 if it has no end\n"
               "or the site does not allow so much."));
  cmd.callback([args, &context] { context.exit_code = run_extend(*args, context); });
}

}  // namespace yoke::cli

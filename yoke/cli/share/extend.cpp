// `yoke extend`: put off the end of a claim.
#include <fmt/format.h>
#include <unistd.h>

#include "yoke/base/error.h"
#include "yoke/base/moment.h"
#include "yoke/claim/reserve.h"
#include "yoke/cli/command.h"
#include "yoke/cli/options/claim.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/value.h"

namespace yoke::cli {
namespace {

struct ExtendArgs {
  std::vector<std::string> claims;
  bool mine = false;
  DeviceOptions device;
  std::string length;
};

/// `candidates`: the devices of this machine; empty if nothing is reserved.
int extend(const ExtendArgs& args, std::chrono::seconds length, const ClaimSite& site,
           const std::vector<claim::Candidate>& candidates, Context& context) {
  const auto survey = look_at_claims(site, context);
  const auto found = find_claims(survey, args.claims, args.mine);
  if (found.empty()) throw Error(ErrorCode::kNotFound, "no device is claimed by you");
  for (const auto* held : found) {
    const auto until = claim::extend_claim(*held, length, survey, site.ledger, site.config, candidates);
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
  auto& args = add_args<ExtendArgs>(cmd, context, run_extend);
  add_value(cmd, "CLAIM", args.claims, "[CLAIM...]", "PIDs of `yoke claims`, or UUIDs of devices");
  cmd.add_flag("--mine", args.mine, "All claims of yours");
  add_value(cmd, "--for", args.length, "TIME", "How much longer: 30m, 4h, 1d12h");
  add_deadline(cmd, args.device.deadline_s);
  cmd.footer(
      examples("  yoke extend 4121 --for 2h      two hours more than it was claimed for\n"
               "\n"
               "Exit status: 0; 66 if there is no such claim, 77 if it belongs to somebody else, 69 if it has no end\n"
               "or the site does not allow so much."));
}

}  // namespace yoke::cli

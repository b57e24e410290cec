// `yoke extend`: put off the end of a claim.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/cli/command.h"
#include "yoke/cli/options/claim.h"

namespace yoke::cli {
namespace {

struct ExtendArgs {
  std::vector<std::string> claims;
  bool mine = false;
  std::string length;
};

int run_extend(const ExtendArgs& args, Context& context) {
  if (args.claims.empty() && !args.mine) {
    throw Error(ErrorCode::kInvalidArgument, "which claim? Give a PID of `yoke claims`, or --mine for all of yours");
  }
  if (args.length.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "for how much longer? Give --for, as in `yoke extend 4121 --for 2h`");
  }
  const auto length = length_of("--for", args.length);
  const auto site = open_claim_site(context);
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
      throw Error(ErrorCode::kFailedPrecondition, "this site limits claims to {} in all, and this one began {} ago",
                  format_duration(*site.config.longest),
                  format_duration(std::chrono::system_clock::now() - held->note->since));
    }
    site.ledger.extend(*held, until);
    context.out << fmt::format("process {} has its devices until {}\n", held->pid.value_or(0), clock_text(until));
  }
  return kExitOk;
}

}  // namespace

void add_extend(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<ExtendArgs>();  // CLI11 keeps references to it; the callback owns it
  cmd.add_option("CLAIM", args->claims, "PIDs of `yoke claims`, or UUIDs of devices")->type_name("[CLAIM...]");
  cmd.add_flag("--mine", args->mine, "All claims of yours");
  cmd.add_option("--for", args->length, "How much longer: 30m, 4h, 1d12h")->type_name("TIME");
  cmd.footer(
      examples("  yoke extend 4121 --for 2h      two hours more than it was claimed for\n"
               "\n"
               "Exit status: 0; 66 if there is no such claim, 77 if it belongs to somebody else, 69 if it has no end\n"
               "or the site does not allow so much."));
  cmd.callback([args, &context] { context.exit_code = run_extend(*args, context); });
}

}  // namespace yoke::cli

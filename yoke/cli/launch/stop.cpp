// `yoke stop`: end a job and wait until it has ended.
#include "yoke/launch/job/stop.h"

#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/help/values.h"
#include "yoke/cli/options/job.h"
#include "yoke/cli/options/value.h"
#include "yoke/cluster/held.h"

namespace yoke::cli {
namespace {

using std::chrono::milliseconds;

/// Slurm kills processes that do not end after KillWait, 30 s unless the site has changed it.
constexpr std::chrono::seconds kReleasePatience{90};

struct StopArgs {
  std::string job;
  bool now = false;
  double timeout_s = 0;
};

launch::FoundJob find(const std::string& name) {
  try {
    return launch::choose_job(launch::find_jobs(), name);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound || name.empty()) throw;
    throw Error(error.code(), "{}; you hold no allocation {} either (`yoke alloc --list`){}", error.what(),
                printable(name), parse_int(name) ? fmt::format("; `scancel {}` ends a job of Slurm", name) : "");
  }
}

/// Gives an allocation back if `name` means one; false if it does not.
/// Errors  kInvalidArgument: it means a job, too, or several allocations.
bool stop_allocation(const StopArgs& args, Context& context) {
  if (args.job.empty()) return false;
  cluster::Allocation held;
  try {
    held = cluster::choose_held(args.job, context.environment);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) return false;
    throw;
  }
  if (args.now) refuse("--now is for a job; {} is an allocation", printable(args.job));
  const auto jobs = launch::find_jobs();
  const auto is_meant = [&](const auto& found) {
    return std::to_string(found.address.pid) == args.job || (found.job && found.job->run_id == args.job);
  };
  if (std::ranges::any_of(jobs, is_meant)) {
    refuse(
        "{} is a job that runs here and an allocation of Slurm; `scancel {}` gives the allocation back, `kill` "
        "with the job's PID ends the job",
        args.job, held.job);
  }
  const auto limit = std::chrono::duration<double>(args.timeout_s > 0 ? args.timeout_s : kReleasePatience.count());
  release_allocation(held, std::chrono::ceil<milliseconds>(limit), context.environment);
  context.out << fmt::format("allocation {} is given back\n", held.job);
  return true;
}

int run_stop(const StopArgs& args, Context& context) {
  if (stop_allocation(args, context)) return kExitOk;
  const auto found = find(args.job);
  launch::StopOptions options{.now = args.now, .tell = teller(context)};
  if (args.timeout_s > 0) options.timeout = std::chrono::duration<double>(args.timeout_s);
  launch::stop(found, options);
  context.out << fmt::format("job {} has ended\n", found.address.pid);
  return kExitOk;
}

}  // namespace

void add_stop(CLI::App& cmd, Context& context) {
  auto& args = add_args<StopArgs>(cmd, context, run_stop);
  add_job_option(cmd, args.job);
  cmd.add_flag("--now", args.now, "Kill the ranks at once, without the grace to save their work");
  add_value(cmd, "--timeout", args.timeout_s, "SECONDS",
            "How long to wait; by default until the job has ended, and 90 s for an allocation")
      ->check(in_range(0.001, 86'400, "seconds"));
  cmd.footer(
      examples("  yoke stop 4121           as SIGTERM to `yoke run`: ranks get SIGTERM, and SIGKILL after --grace\n"
               "  yoke stop                the only job\n"
               "  yoke stop 4121 --now     kill at once\n"
               "  yoke stop debug          give an allocation back, by its job's id, its name or `last`\n"
               "\n"
               "Exit status: 0 when the job has ended; 124 when it has not within --timeout, or does not answer;\n"
               "66 when there is no such job; 75 if Slurm cannot be reached."));
}

}  // namespace yoke::cli

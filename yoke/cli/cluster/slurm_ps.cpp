// `yoke slurm ps`: list the jobs of a cluster, where they run, and why the others wait.
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/text.h"
#include "yoke/cli/cluster/slurm.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/options/repetition.h"
#include "yoke/cli/options/value.h"
#include "yoke/slurm/job/job_file.h"
#include "yoke/slurm/job/job_list.h"

namespace yoke::cli {
namespace {

/// How long --watch waits for a slurmctld that does not answer.
constexpr std::chrono::minutes kMostSilence{10};

struct SlurmPsArgs {
  std::vector<std::string> jobs;
  bool all = false, json = false;
  Repetition repetition;
};

std::string slurm_ps_text(const SlurmPsArgs& args, const Context& context) {
  const auto list = slurm::list_jobs(args.jobs, args.all, context.environment);
  if (!args.json) return to_text(list, table_width(context));
  return json_record(to_json(list), args.repetition);
}

int run_slurm_ps(const SlurmPsArgs& args, Context& context) {
  if (args.all && !args.jobs.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "--all lists every job, so name no JOB with it");
  }
  for (const auto& job : args.jobs) slurm::require_job_targets(job);
  std::optional<Clock::time_point> silent_until;
  repeat(args.repetition, args.json ? PictureKind::kRecords : PictureKind::kText, context, [&](int64_t number) {
    Picture picture{.time = std::chrono::system_clock::now(), .host = "slurm", .text = "", .notes = ""};
    try {
      picture.text = slurm_ps_text(args, context);
      silent_until.reset();
    } catch (const Error& error) {  // slurmctld restarts, perhaps
      const bool may_return = error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kTimeout;
      const bool is_first = !silent_until;
      if (is_first) silent_until = Clock::now() + kMostSilence;
      if (number == 0 || !may_return || Clock::now() >= *silent_until) throw;
      const auto text =
          fmt::format("{}; trying again for {}", printable(error.what()),
                      format_rough_duration(std::chrono::ceil<std::chrono::seconds>(*silent_until - Clock::now())));
      if (!args.json) picture.text = text + '\n';
      if (args.json && is_first) teller(context)(Told::kNews, text);
    }
    return picture;
  });
  return kExitOk;
}

}  // namespace

void add_slurm_ps(CLI::App& cmd, Context& context) {
  auto& args = add_args<SlurmPsArgs>(cmd, context, run_slurm_ps);
  add_value(cmd, "JOB", args.jobs, "JOB", "These jobs alone, whoever owns them")->expected(0, -1);
  cmd.add_flag("--all", args.all, "The jobs of all users");
  cmd.add_flag("--json", args.json, "Print JSON");
  add_watch_option(cmd, args.repetition);
  cmd.footer(
      examples("  yoke slurm ps                your jobs: where they run, or why they wait and until when\n"
               "  yoke slurm ps 4121           one job, or all tasks of an array\n"
               "  yoke slurm ps '4131_[1-3]'   these tasks of it; 5-7 and 5,9 are several jobs\n"
               "  yoke slurm ps --all          everybody's\n"
               "  yoke slurm ps --watch 30     again every 30 s; each time takes slurmctld some work\n"
               "\n"
               "Below the table stands what each reason to wait means, and what to do. A start that is\n"
               "expected is slurmctld's estimate: jobs that end early or come later change it.\n"
               "\n"
               "Exit status: 0, also when there is none; 75 if slurmctld or munge cannot be reached, 124 if\n"
               "slurmctld gives no answer in 15 s. With --watch, this is tried again for 10 minutes."));
}

}  // namespace yoke::cli

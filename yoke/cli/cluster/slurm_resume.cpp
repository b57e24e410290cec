// `yoke slurm resume`: runs the script of a job again, so that its program goes on from its newest checkpoint.
#include <fmt/format.h>

#include <filesystem>

#include "yoke/base/error.h"
#include "yoke/base/held_signals.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/cli/cluster/slurm.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/options/value.h"
#include "yoke/slurm/job/resume_job.h"

namespace yoke::cli {
namespace {

struct SlurmResumeArgs {
  std::string job, folder;
  bool dry_run = false;
};

void resume_one(const slurm::JobName& name, const SlurmResumeArgs& args, Context& context) {
  const auto tell = teller(context);
  const auto plan = slurm::plan_resume(name, args.folder, context.environment);
  const bool is_told_before = !plan.job || args.dry_run;
  if (is_told_before && !plan.success.empty()) tell(Told::kNews, plan.success);
  if (args.dry_run) {
    context.out << describe(plan);
    return;
  }
  const HeldSignals held;
  context.out << resume(plan, context.environment, tell);
  context.out.flush();
  if (is_told_before || plan.success.empty()) return;
  tell(Told::kNews, fmt::format("{}; `scancel {}` stops that", plan.success, shell_word(plan.job->id)));
}

int run_slurm_resume(SlurmResumeArgs args, Context& context) {
  const auto names = slurm::names_to_resume(args.job);
  if (names.size() == 1) {
    resume_one(names[0], args, context);
    return kExitOk;
  }
  if (!args.folder.empty())
    args.folder = std::filesystem::absolute(args.folder).string();  // resuming changes the working folder
  int status = kExitOk;
  for (size_t i = 0; i < names.size(); ++i) {
    try {
      resume_one(names[i], args, context);
    } catch (const Error& error) {  // it does not keep the others from running again
      // A Slurm that does not answer would keep each of them waiting.
      const bool is_silent = error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kTimeout;
      const bool is_end = is_silent && i + 1 < names.size();
      teller(context)(
          Told::kNews,
          printable(error.what()) +
              (is_end ? fmt::format("; the others were not tried, from {} on", to_text(names[i + 1])) : ""));
      if (is_silent || status == kExitOk) status = exit_status(error.code());
      if (is_end) break;
    }
  }
  return status;
}

}  // namespace

void add_slurm_resume(CLI::App& cmd, Context& context) {
  auto& args = add_args<SlurmResumeArgs>(cmd, context, run_slurm_resume);
  add_value(cmd, "JOB", args.job, "JOB",
            "A job that has ended, as 123, or a task of an array, as 123_4; '123_[1-3]' and 5-7 are several")
      ->required();
  add_value(cmd, "--folder", args.folder, "FOLDER", "Where to look for checkpoints, if not where the job started");
  cmd.add_flag("--dry-run", args.dry_run, "Say what would be done, and do nothing");
  cmd.footer(
      examples("  yoke slurm resume 4121             after a time limit, a failure or scancel\n"
               "  yoke slurm resume '4121_[1-3]'     these tasks of an array\n"
               "  yoke slurm resume --dry-run 4121   from which checkpoint it would go on\n"
               "\n"
               "The job keeps its number, its script and its options (scontrol requeue). If slurmctld has\n"
               "forgotten it (MinJobAge after its end), the script that `yoke slurm submit` has kept is\n"
               "submitted again in its folder, as a new job; of an array, the task that you name. The program must "
               "look for its newest checkpoint\n"
               "by itself, as yoke's trainings do.\n"
               "\n"
               "A job that has succeeded is resumed too, with a remark.\n"
               "\n"
               "Of several jobs, each is resumed once. If slurmctld gives no answer, the rest is not tried.\n"
               "\n"
               "Exit status: 0; 64 if the job is an array and no task is named; 66 if slurmctld has forgotten the\n"
               "job and there is no script; 69 if it has not ended or Slurm refuses; 75 if slurmctld or munge\n"
               "cannot be reached; 77 if the job, its output or its script is of another user; 124 if slurmctld\n"
               "gives no answer."));
}

}  // namespace yoke::cli

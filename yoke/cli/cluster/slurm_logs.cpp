// `yoke slurm logs`: print what a job's batch script and its steps have printed, and follow it.
#include <unistd.h>

#include <iostream>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cli/cluster/slurm.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/options/value.h"
#include "yoke/slurm/job/follow_logs.h"
#include "yoke/slurm/job/job_file.h"

namespace yoke::cli {
namespace {

struct SlurmLogsArgs {
  std::string job;
  bool follow = false;
  std::optional<int64_t> num_lines;
};

/// Standard output and standard error, as the job had them.
slurm::LogPage page_of(Context& context) {
  const auto print = [&out = context.out](const slurm::LogLine& line) {
    const bool is_terminal = isatty(line.is_error ? STDERR_FILENO : STDOUT_FILENO) == 1;
    (line.is_error ? std::cerr : out) << line.prefix
                                      << (is_terminal ? printable_with_colours(line.text) : std::string(line.text))
                                      << '\n';
  };
  return {.print = print, .flush = [&out = context.out] { return static_cast<bool>(out.flush()); }};
}

int run_slurm_logs(const SlurmLogsArgs& args, Context& context) {
  auto targets = slurm::require_job_targets(args.job);
  if (targets.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "{} are several jobs; name one, or an array, or tasks of it as '123_[1-3]'", printable(args.job));
  }
  targets[0].name.component.reset();  // the batch script is that of all components
  const slurm::LogsRequest request{.target = targets[0], .follows = args.follow, .num_lines = args.num_lines};
  const bool has_all = slurm::show_logs(request, context.environment, page_of(context), teller(context));
  return has_all ? kExitOk : exit_status(ErrorCode::kNotFound);
}

}  // namespace

void add_slurm_logs(CLI::App& cmd, Context& context) {
  auto& args = add_args<SlurmLogsArgs>(cmd, context, run_slurm_logs);
  add_value(cmd, "JOB", args.job, "JOB", "The number of the job, as 123, or of a task of an array, as 123_4")
      ->required();
  cmd.add_flag("-f,--follow", args.follow, "Go on with new lines until the job ends; waits for it to start");
  add_number(cmd, "-n,--lines", args.num_lines, {"N", 0, 1e9}, "The last N lines of each file alone");
  cmd.footer(
      examples("  yoke slurm logs 4121          what it has printed\n"
               "  yoke slurm logs -f 4121       and all to come, until it ends\n"
               "  yoke slurm logs -n 5 4121     the last 5 lines; of an array, of each task\n"
               "  yoke slurm logs 4121_7        one task of an array; '4121_[1-3]' are several\n"
               "\n"
               "slurmctld tells where a job writes. After it has forgotten the job, the accounts (sacct) tell\n"
               "the folder and the command line; or the note of `yoke slurm submit` tells the file; or files in\n"
               "this folder with the job's number are taken.\n"
               "\n"
               "With files of ranks (yoke slurm submit --file-per-rank), lines begin with the rank, or the node.\n"
               "Files that `yoke slurm resume` has renamed are named if the job has no other one yet.\n"
               "\n"
               "Exit status: 0; 66 if there is no such job or file, or it has not started; 75 if slurmctld or\n"
               "munge cannot be reached; 124 if slurmctld gives no answer in 15 s."));
}

}  // namespace yoke::cli

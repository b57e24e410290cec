// `yoke slurm sample`: writes what a job uses on this node into a small file, for `yoke slurm report`.
#include <fmt/format.h>
#include <unistd.h>

#include "yoke/base/error.h"
#include "yoke/cli/cluster/slurm.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/options/value.h"
#include "yoke/slurm/job/job_folder.h"
#include "yoke/slurm/job/node_sampler.h"

namespace yoke::cli {
namespace {

struct SlurmSampleArgs {
  double interval_s = 10;
  bool until_eof = false;
};

int run_slurm_sample(const SlurmSampleArgs& args, const Context& context) {
  if (context.rest.empty() && !args.until_eof) {
    throw Error(ErrorCode::kInvalidArgument, "give a program, as in `yoke slurm sample -- python train.py`");
  }
  const auto tell = teller(context);
  const auto job = parse_int(context.environment.value_or("SLURM_JOB_ID", ""));
  const auto folder = slurm::samples_folder(context.environment);
  if (!job || *job <= 0 || !folder) {
    if (args.until_eof) return kExitOk;
    // A script that is tried outside of a job must work there too.
    tell(Told::kNews, folder ? "this is not a job of Slurm (SLURM_JOB_ID is not set), so nothing is sampled"
                             : "there is no folder for samples (HOME, YOKE_SLURM_SAMPLES), so nothing is sampled");
    return slurm::become_program(context.rest, tell);
  }
  slurm::NodeSampler sampler({.job = *job,
                              .folder = fmt::format("{}/{}", *folder, *job),
                              .interval = std::chrono::duration<double>(args.interval_s)},
                             context.environment, tell);
  int status = kExitOk;
  if (args.until_eof) {
    sample_until_eof(sampler, STDIN_FILENO);
  } else {
    status = sample_program(sampler, context.rest, tell);
  }
  if (args.until_eof || sampler.has_stuck_worker()) _exit(status);  // a driver may hold a thread
  return status;
}

}  // namespace

void add_slurm_sample(CLI::App& cmd, Context& context) {
  auto& args = add_args<SlurmSampleArgs>(cmd, context, run_slurm_sample);
  add_number(cmd, "--interval", args.interval_s, {"SECONDS", 1, 3600}, "Time between two samples");
  cmd.add_flag("--until-eof", args.until_eof,
               "Without a program: sample until standard input ends, as `yoke run` asks");
  add_program(cmd, "PROGRAM", "What to run, with its arguments; every word from here on is its own");
  cmd.footer(
      examples("  srun --ntasks-per-node=1 yoke slurm sample -- torchrun train.py    on each node of a job\n"
               "  yoke slurm sample -- python train.py                               in a script for one node\n"
               "\n"
               "`yoke run` samples by itself in a job; YOKE_SLURM_SAMPLES=0 turns that off, and\n"
               "YOKE_SLURM_SAMPLES=FOLDER chooses the folder, which all nodes must share.\n"
               "\n"
               "The exit status is the program's: 128 and the signal's number if a signal ended it,\n"
               "127 if it is not found."));
}

}  // namespace yoke::cli

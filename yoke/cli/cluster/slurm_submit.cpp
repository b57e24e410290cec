// `yoke slurm submit`: submits a job in terms of nodes, ranks and devices.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "yoke/base/error.h"
#include "yoke/base/held_signals.h"
#include "yoke/base/json.h"
#include "yoke/base/process.h"
#include "yoke/cli/cluster/slurm.h"
#include "yoke/cli/cluster/slurm_options.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/options/value.h"
#include "yoke/slurm/job/job_note.h"
#include "yoke/slurm/job/planned_job.h"
#include "yoke/slurm/job/submit.h"
#include "yoke/slurm/job/wait_for_job.h"

namespace yoke::cli {
namespace {

struct SubmitArgs {
  SlurmJobOptions job;
  bool json = false, dry = false, waits = false;
};

Json lines_as_json(const std::vector<slurm::Line>& lines) {
  return json_list(lines, [](const auto& line) -> Json { return {{"what", line.text}, {"why", line.why}}; });
}

std::string site_words(const slurm::FoundSite& site) { return fmt::format("{} ({})", site.site.name, site.why); }

int run_dry(const slurm::PlannedJob& job, const SubmitArgs& args, Context& context) {
  std::string start = "Slurm is not installed here";
  std::optional<Error> problem;
  try {
    if (find_program("sbatch", context.environment))
      start = slurm::test_submission(job.script, slurm::without_sbatch_variables(context.environment));
  } catch (const Error& error) {  // the script is shown nevertheless
    problem = error;
  }
  const int status = problem ? exit_status(problem->code()) : kExitOk;
  if (args.json) {
    print_json({{"job", nullptr},
                {"site", job.site.site.name},
                {"script_text", job.script},
                {"decisions", lines_as_json(job.plan.decisions)},
                {"warnings", job.plan.warnings},
                {"start", problem ? Json() : Json(start)},
                {"problem", problem ? Json(problem->what()) : Json()}},
               context);
    return status;
  }
  context.out << job.script;
  context.out.flush();
  teller(context)(Told::kNews, fmt::format("nothing is submitted; site {}; {}", site_words(job.site),
                                           problem ? problem->what() : start));
  return status;
}

void print_submission(const Json& note, const slurm::PlannedJob& job, const SubmitArgs& args, Context& context) {
  if (args.json) {
    auto json = note;
    json["decisions"] = lines_as_json(job.plan.decisions);
    json["warnings"] = job.plan.warnings;
    print_json(json, context);
  } else {
    const auto id = text_member(note, "job"), script = text_member(note, "script");
    context.out << fmt::format("job {} ({}), site {}\n", id, text_member(note, "name"), site_words(job.site));
    for (const auto& [what, why] : job.plan.decisions) context.out << fmt::format("  {}: {}\n", what, why);
    context.out << fmt::format("output  {}\n", text_member(note, "output"));
    if (!script.empty()) context.out << fmt::format("script  {}\n", script);
    context.out << fmt::format("next    yoke slurm logs {0} -f; squeue -j {0}; scancel {0}\n", id);
  }
  context.out.flush();
}

int run_submit(const SubmitArgs& args, Context& context) {
  auto job = plan_job(args.job, context);
  std::ranges::move(check_program_here(args.job, context), std::back_inserter(job.plan.warnings));
  slurm::check_outputs(job.plan, job.site.version);
  if (!args.job.request.array.empty()) slurm::check_array_size(args.job.request.array, context.environment);
  if (args.dry) return run_dry(job, args, context);
  const auto tell = teller(context);
  std::string id;
  {
    const HeldSignals held;
    const auto note = slurm::submit_with_note({{"job", nullptr},
                                               {"name", slurm::directive_of(job.plan, "--job-name")},
                                               {"output_pattern", slurm::directive_of(job.plan, "--output")},
                                               {"site", job.site.site.name},
                                               {"ranks", job.plan.num_ranks},
                                               {"argv", context.rest}},
                                              job.script, context.environment, tell);
    id = text_member(note, "job");
    print_submission(note, job, args, context);
    if (!context.out) {
      const auto why = system_error(error_of(context.out), "writing the output");
      context.out.clear();
      throw Error(why.code(), "{}; job {} is submitted all the same", why.what(), id);
    }
  }
  return args.waits ? slurm::wait_for_job(id, context.environment, tell) : kExitOk;
}

}  // namespace

void add_slurm_submit(CLI::App& cmd, Context& context) {
  auto& args = add_args<SubmitArgs>(cmd, context, run_submit);
  add_job_options(cmd, args.job);
  cmd.add_flag("--dry-run", args.dry, "Print the script, and ask Slurm when it could start; submit nothing");
  cmd.add_flag("--wait", args.waits, "Wait for the job's end, and exit with its status");
  cmd.add_flag("--json", args.json, "Print JSON");
  add_program(cmd, "PROGRAM", "What to run, with its arguments; every word from here on is its own");
  cmd.footer(examples(
      "  yoke slurm submit -N 2 -t 2h -- python train.py      one rank for each GPU of two nodes\n"
      "  yoke slurm submit --gpus-per-node 1 -t 30m -- python train.py --workers {cpus}\n"
      "  yoke slurm submit -N 2 -t 1h -- torchrun train.py    torchrun on each node\n"
      "  yoke slurm submit -t 10m --gpus-per-node 0 --ranks-per-node 4 -- ./train\n"
      "  yoke slurm submit -t 1h --dry-run -- python train.py\n"
      "\n"
      "{cpus} in the program's words is the number of CPUs of a rank, {gpus} that of GPUs of a node. The script is "
      "kept as slurm-JOB.sh in this folder, where also the output goes.\n"
      "\n"
      "Exit status: 0 once the job is submitted; 69 if Slurm refuses it; with --wait that of the job, 75 if Slurm "
      "ended "
      "it (time limit, cancelled, lost node), or 69 if it can never start (a dependency that cannot be fulfilled); or "
      "that of an error as `yoke --help` lists them."));
}

}  // namespace yoke::cli

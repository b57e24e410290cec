// `yoke slurm array`: submits a sweep as an array of jobs, and its failed tasks again, and shows its results.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/held_signals.h"
#include "yoke/base/json.h"
#include "yoke/base/shell.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/cli/cluster/slurm.h"
#include "yoke/cli/cluster/slurm_options.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/options/value.h"
#include "yoke/curve/recording.h"
#include "yoke/slurm/job/array_submission.h"
#include "yoke/slurm/job/sweep_folder.h"

namespace yoke::cli {
namespace {

struct SlurmArrayArgs {
  std::vector<std::string> parameters;
  std::string folder, file, collect, rerun;
  std::vector<std::string> options;
  std::optional<int64_t> at_once;
  std::optional<double> growth;
  bool json = false, csv = false, dry_run = false;
};

int submit_sweep(const SlurmArrayArgs& args, Context& context) {
  const auto tell = teller(context);
  auto tasks = slurm::plan_tasks({.parameters = args.parameters, .parameter_file = args.file, .argv = context.rest});
  const auto warnings = check_program_here({}, context);
  for (const auto& name : tasks.unknown_placeholders) {
    tell(Told::kNews, fmt::format("there is no --param {}, so {{{}}} stays as it is", name, name));
  }
  auto array = slurm::plan_array(std::move(tasks.tasks),
                                 {.folder = args.folder, .options = args.options, .at_once = args.at_once},
                                 context.rest, context.environment);
  const auto num_tasks = array.sweep.tasks.size();
  if (!array.warning.empty()) tell(Told::kWarning, array.warning);
  if (args.dry_run) {
    context.out << fmt::format("{} tasks; {}\n\n{}", num_tasks, slurm::sbatch_line(array.options), array.script);
    return kExitOk;
  }
  slurm::check_array(array, context.environment);
  const HeldSignals held;
  slurm::submit_array(array, context.environment, tell);
  const auto &job = array.sweep.job, &folder = array.sweep.folder;
  if (args.json) {
    print_json({{"job", job}, {"folder", folder}, {"num_tasks", num_tasks}, {"warnings", warnings}}, context);
  } else {
    context.out << fmt::format("job {}: {} in {}\n  yoke slurm ps {}\n  yoke slurm array --collect {}\n", job,
                               counted(num_tasks, "task"), printable(folder), job, job);
  }
  context.out.flush();
  return kExitOk;
}

/// What will be submitted, or was: `number` is null before.
Json rerun_json(const slurm::SweepRerun& rerun, Json number) {
  return {{"job", std::move(number)}, {"tasks", rerun.tasks}, {"options", rerun.options}};
}

int rerun_sweep(const SlurmArrayArgs& args, Context& context) {
  auto plan =
      slurm::plan_reruns({.sweep = args.rerun, .options = args.options, .growth = args.growth, .at_once = args.at_once},
                         context.environment);
  const auto tell = teller(context);
  auto json = Json::array(), failed = json;
  std::optional<Error> failure;  // what was submitted before it is printed all the same
  const HeldSignals held;
  if (args.dry_run) {
    for (const auto& rerun : plan.reruns) {
      json.push_back(rerun_json(rerun, nullptr));
      if (!args.json) context.out << slurm::sbatch_line(plan.options_of(rerun)) << '\n';
    }
  } else {
    failure = slurm::submit_reruns(plan, context.environment, tell, [&](const slurm::RerunEnd& end) {
      const auto& rerun = end.rerun;
      const auto tasks = fmt::format("task{} {}", rerun.tasks.size() == 1 ? "" : "s", slurm::to_task_list(rerun.tasks));
      if (end.failure || !end.is_tried) {
        failed.push_back({{"tasks", rerun.tasks},
                          {"options", rerun.options},
                          {"error", end.failure ? end.failure->what() : "not tried"},
                          {"may_run", end.failure && slurm::may_be_queued(*end.failure)}});
        if (end.failure && plan.reruns.size() > 1) {
          tell(Told::kNews, fmt::format("{}: {}", tasks, printable(end.failure->what())));
        }
        return;
      }
      json.push_back(rerun_json(rerun, rerun.job));
      if (args.json) return;
      context.out << fmt::format("job {}: {} again{}{}\n", rerun.job, tasks, rerun.options.empty() ? "" : ", with ",
                                 printable(fmt::format("{}", fmt::join(rerun.options, " "))));
      context.out.flush();  // a later one may be refused
    });
  }
  const auto& folder = plan.folder.path;
  if (args.json) {
    print_json({{"folder", folder.string()}, {"reruns", json}, {"failed", failed}}, context);
  } else if (plan.reruns.empty()) {
    context.out << fmt::format("no task has failed; {} of {} have not ended\n", plan.num_open, plan.num_tasks);
  } else if (!args.dry_run && failed.size() < plan.reruns.size()) {
    context.out << fmt::format(
        "what they printed before is beside, in slurm.out.0 and so on\n"
        "  yoke slurm array --collect {}\n",
        shell_word(printable(folder.string())));
  }
  context.out.flush();
  if (!failure) return kExitOk;
  throw plan.reruns.size() == 1 ? *failure : slurm::failure_of_several(*failure, failed.size(), plan.reruns.size());
}

/// The last value of each metric that the task wrote.
std::vector<std::pair<std::string, double>> last_metrics(const std::filesystem::path& folder) {
  std::vector<std::pair<std::string, double>> metrics;
  const auto take = [&](const std::filesystem::path& run) {
    for (const auto& curve : curve::read_run(run).curves) {
      if (!curve.values.empty()) metrics.emplace_back(curve.metric, curve.values.back());
    }
  };
  try {
    take(folder);
  } catch (const Error&) {
    try {
      take(curve::newest_run(folder));
    } catch (const Error&) {  // no metrics
    }
  }
  return metrics;
}

int collect_sweep(const SlurmArrayArgs& args, Context& context) {
  slurm::SweepResults results{.folder = slurm::open_sweep(args.collect, context.environment)};
  results.states = slurm::sweep_states(results.folder, context.environment);
  for (size_t i = 0; i < results.folder.sweep.tasks.size(); ++i) {
    results.metrics.push_back(last_metrics(results.folder.of_task(i)));
  }
  if (args.json) {
    print_json(to_json(results), context);
  } else {
    const auto table = to_table(results, args.csv ? "" : "-");
    context.out << (args.csv ? to_csv(table) : to_text(table, table_width(context)));
  }
  tell_ends(results, teller(context));
  return exit_status_of(results);
}

int run_slurm_array(const SlurmArrayArgs& args, Context& context) {
  const bool is_collecting = !args.collect.empty(), is_rerunning = !args.rerun.empty();
  if (is_collecting && is_rerunning) {
    throw Error(ErrorCode::kInvalidArgument, "give --collect, which shows a sweep, or --rerun, which submits tasks");
  }
  if ((is_collecting || is_rerunning) && (!args.parameters.empty() || !args.file.empty() || !context.rest.empty())) {
    throw Error(ErrorCode::kInvalidArgument, "{} is for a sweep that was submitted; it takes no program and no --param",
                is_collecting ? "--collect" : "--rerun");
  }
  if (args.csv && !is_collecting) throw Error(ErrorCode::kInvalidArgument, "--csv needs --collect");
  if (args.growth && !is_rerunning) throw Error(ErrorCode::kInvalidArgument, "--grow needs --rerun");
  if (is_collecting) return collect_sweep(args, context);
  if (is_rerunning) return rerun_sweep(args, context);
  if (context.rest.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "give a program, as in `yoke slurm array --param lr=0.1,0.01 -- ./train --lr {lr}`");
  }
  return submit_sweep(args, context);
}

}  // namespace

void add_slurm_array(CLI::App& cmd, Context& context) {
  auto& args = add_args<SlurmArrayArgs>(cmd, context, run_slurm_array);
  args.folder = "sweep";
  add_values(cmd, "--param", args.parameters, "NAME=VALUE,...",
             "A parameter and its values; in the program's words {NAME} becomes a value");
  add_value(cmd, "--param-file", args.file, "FILE",
            "CSV: the first line has names, each other one the values of a task, \"4,8\" with commas in quotes");
  add_value(cmd, "--folder", args.folder, "FOLDER", "Where each task gets a folder, which all nodes must see")
      ->capture_default_str();
  add_number(cmd, "--at-once", args.at_once, {"N", 1, 1e6}, "Run at most N tasks at the same time");
  add_values(cmd, "--sbatch", args.options, "OPTIONS",
             "Options of sbatch for each task, as '-t 1:00:00 --gpus-per-node=1'");
  add_value(cmd, "--collect", args.collect, "JOB|FOLDER", "Show the results of a sweep: its job or its folder");
  add_value(cmd, "--rerun", args.rerun, "JOB|FOLDER", "Submit the tasks of a sweep again that failed or never started");
  add_number(cmd, "--grow", args.growth, {"FACTOR", 1, 1000},
             "With --rerun: tasks that ran out of memory or time get FACTOR times as much of it");
  cmd.add_flag("--csv", args.csv, "With --collect: print CSV");
  cmd.add_flag("--json", args.json, "Print JSON");
  cmd.add_flag("--dry-run", args.dry_run, "Print the script and the command line of sbatch, and submit nothing");
  static constexpr const char* kInside = "give it in --sbatch, as in --sbatch '-t 1:00:00 --gpus-per-node=1'";
  static constexpr SbatchHabit kHabits[] = {{"-t,--time", kInside},
                                            {"-p,--partition", kInside},
                                            {"-A,--account", kInside},
                                            {"-q,--qos", kInside},
                                            {"-N,--nodes", kInside},
                                            {"-n,--ntasks", kInside},
                                            {"-c,--cpus-per-task", kInside},
                                            {"-G,--gpus", kInside},
                                            {"--gpus-per-node", kInside},
                                            {"--gres", kInside},
                                            {"--mem", kInside},
                                            {"-J,--job-name", kInside},
                                            {"-d,--dependency", kInside},
                                            {"-a,--array", "tasks follow from --param; --at-once N is for %N"}};
  add_habits(cmd, kHabits);
  add_program(cmd, "PROGRAM", "What each task runs, with its arguments; every word from here on is its own");
  cmd.footer(examples(
      "  yoke slurm array --param lr=0.1,0.01 --param batch=32,64 --sbatch '-t 1:00:00 --gpus-per-node=1' \\\n"
      "      -- python train.py --lr {lr} --batch {batch}    four tasks, in sweep/0 to sweep/3\n"
      "  yoke slurm array --param-file runs.csv -- ./train --lr {lr} --layers {layers}    a task for each line\n"
      "  yoke slurm array --param a=1,2 --folder eval --sbatch '-d aftercorr:4131' -- ./evaluate {a}\n"
      "                                                      each after the task with its number of job 4131\n"
      "  yoke slurm array --collect sweep                    the last metrics of each, and what failed\n"
      "  yoke slurm array --collect 4131 --csv >results.csv\n"
      "  yoke slurm array --rerun sweep                      those that failed or never started\n"
      "  yoke slurm array --rerun sweep --grow 2             with twice the memory or time, if that was short\n"
      "  yoke slurm array --rerun sweep --sbatch '-p long -t 2-0'    with other options\n"
      "\n"
      "Each task runs in a folder of its own. Words of the program that name files here are made\n"
      "absolute. Metrics are what `yoke curve` reads: metrics.csv, JSON lines, TensorBoard's files.\n"
      "\n"
      "--rerun submits sweep.sh again with the options of the sweep and those given now, as a new array in\n"
      "the same folders; tasks that wait, run or have succeeded are left alone.\n"
      "\n"
      "Exit status: 0; with --collect 75 if a task has not ended, else 66 if Slurm has forgotten how a task\n"
      "ended, else 1 if a task has failed; 75 if slurmctld or munge cannot be reached.\n"
      "To wait: while yoke slurm array --collect sweep >results; [ $? = 75 ]; do sleep 60; done"));
}

}  // namespace yoke::cli

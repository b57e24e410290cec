// `yoke slurm array`: submits a sweep as an array of jobs, and its failed tasks again.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/held_signals.h"
#include "yoke/base/quantity.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/options/slurm.h"
#include "yoke/cli/options/value.h"
#include "yoke/cli/slurm.h"
#include "yoke/cli/slurm_sweep.h"
#include "yoke/slurm/check/options.h"
#include "yoke/slurm/check/request.h"
#include "yoke/slurm/check/script.h"
#include "yoke/slurm/job/job_note.h"
#include "yoke/slurm/job_folder.h"
#include "yoke/slurm/outputs.h"
#include "yoke/slurm/programs.h"
#include "yoke/slurm/query.h"
#include "yoke/slurm/script/plan.h"
#include "yoke/slurm/submit.h"
#include "yoke/slurm/sweep.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;
using ArrayJson = nlohmann::ordered_json;

struct SlurmArrayArgs {
  std::vector<std::string> parameters;
  std::string folder, file, collect, rerun;
  std::vector<std::string> options;
  std::optional<int64_t> at_once;
  std::optional<double> growth;
  bool json = false, csv = false, dry_run = false;
};

/// Tasks run in folders of their own, so words that name files here become absolute.
std::vector<std::string> with_absolute_files(std::vector<std::string> argv) {
  std::error_code ignored;
  for (size_t i = 0; i < argv.size(); ++i) {
    const bool is_program_in_path = i == 0 && argv[i].find('/') == argv[i].npos;
    if (is_program_in_path || argv[i].empty() || argv[i][0] == '-' || !fs::exists(argv[i], ignored)) continue;
    argv[i] = fs::absolute(argv[i], ignored).string();
  }
  return argv;
}

/// Removes what was made for a sweep that Slurm has refused, but no file of another owner.
void remove_sweep(const fs::path& folder, size_t num_tasks) {
  std::error_code ignored;
  for (const auto* file : {"sweep.sh", "sweep.json"}) fs::remove(folder / file, ignored);
  for (size_t i = 0; i < num_tasks; ++i) fs::remove(folder / std::to_string(i), ignored);  // if it is empty
  fs::remove(folder, ignored);
}

/// Other commands of yoke take "2h", which sbatch refuses without saying why.
void check_time(const slurm::check::GivenOption& option) {
  const auto length = parse_length(option.value);
  if (!length || slurm::check::parse_minutes(option.value)) return;
  throw Error(ErrorCode::kInvalidArgument, "--sbatch '{0} {1}': sbatch does not know this form; write {0} {2}",
              printable(option.written), printable(option.value), slurm::slurm_time(option.value));
}

/// The words of all --sbatch, separated as in a line of #SBATCH. Errors  kInvalidArgument: there is an option that the
/// sweep itself sets, or another word, or a quote is not closed.
std::vector<std::string> sbatch_words(const std::vector<std::string>& all_options) {
  const auto options = fmt::format("{}", fmt::join(all_options, " "));
  const auto line = slurm::check::read_directive(options, 1);
  if (line.unmatched_quote != 0 || line.has_hash) {
    throw Error(ErrorCode::kInvalidArgument, "--sbatch {}: {}", printable(options),
                line.has_hash ? "a # begins a comment; put the value into quotes" : "a quote is not closed");
  }
  std::vector<slurm::check::OptionWord> words;
  for (const auto& word : line.words) words.push_back({.text = word});
  const auto parsed = slurm::check::parse_options(slurm::check::kSbatch, words);
  constexpr std::array<std::string_view, 7> kOwn = {"array",     "chdir", "output",  "wrap",
                                                    "test-only", "wait",  "parsable"};
  for (const auto& option : parsed.given) {
    if (option.spec->name == std::string_view("time")) check_time(option);
    if (std::ranges::find(kOwn, option.spec->name) == kOwn.end()) continue;
    throw Error(ErrorCode::kInvalidArgument, "--sbatch {}: the sweep sets this option itself, or cannot use it",
                printable(option.written));
  }
  if (parsed.num_used < words.size()) {
    throw Error(ErrorCode::kInvalidArgument, "--sbatch {}: this is no option; write a value as --option=value",
                printable(words[parsed.num_used].text));
  }
  std::vector<std::string> result;
  for (const auto& word : words) result.push_back(word.text);
  return result;
}

/// The value of --error in the words of sbatch; empty if it is not given.
std::string error_path(const std::vector<std::string>& options) {
  std::vector<slurm::check::OptionWord> words;
  for (const auto& word : options) words.push_back({.text = word});
  std::string path;
  for (const auto& option : slurm::check::parse_options(slurm::check::kSbatch, words).given) {
    if (option.spec->short_name == 'e') path = option.value;  // the last one counts
  }
  return path;
}

/// Errors  kInvalidArgument: Slurm could not write --error, and the tasks would fail without a word. Relative paths are
/// in the folder of the sweep, which has no other folders than those of its tasks.
void check_error_path(const fs::path& folder, const std::vector<std::string>& options, const Environment& environment) {
  const fs::path path = error_path(options);
  const auto parent = path.parent_path();
  std::error_code ignored;
  const bool is_there = parent.empty() || parent == "%a" || parent == "./%a" ||
                        fs::is_directory((folder / parent).lexically_normal(), ignored);
  if (is_there || (path.is_absolute() && !slurm::missing_output_folder(path, "/"))) return;
  if (const auto version = slurm::installed_version(environment); version && *version >= slurm::Version{23, 2, 0})
    return;
  throw Error(
      ErrorCode::kInvalidArgument,
      "--sbatch --error={0}: there is no folder {1}, and Slurm before 23.02 does not make it; give %a/{2}, which "
      "is in the folder of each task, or the path of a folder that is there",
      printable(path.string()), printable(parent.string()), printable(path.filename().string()));
}

/// The command that submits a sweep, for people.
std::string sbatch_line(const std::vector<std::string>& options) {
  std::string line = "sbatch";
  for (const auto& option : options) line += " " + shell_word(printable(option));
  return line + " <sweep.sh";
}

/// Whether an array may be in the queue although its submission failed: sbatch gave no answer, or no number.
bool may_run(const Error& error) { return error.code() == ErrorCode::kTimeout || error.code() == ErrorCode::kDataLoss; }

/// Makes the folders and files of a sweep, and submits it.
slurm::Submission make_sweep(const fs::path& folder, const slurm::Sweep& sweep, const std::string& script,
                             const std::vector<std::string>& options, const Environment& environment) {
  try {
    for (size_t i = 0; i < sweep.tasks.size(); ++i) fs::create_directories(folder / std::to_string(i));
    slurm::write_text(folder / "sweep.sh", script);
    slurm::write_text(folder / "sweep.json", to_text(sweep));
    return slurm::submit(script, environment, options);
  } catch (const Error& error) {
    if (!may_run(error)) remove_sweep(folder, sweep.tasks.size());
    throw;
  } catch (const fs::filesystem_error& error) {
    remove_sweep(folder, sweep.tasks.size());
    throw system_error(error.code().value(), "making the folders of the sweep in " + folder.string());
  }
}

/// The words of sbatch for `tasks`, a list such as "0-9", with those of the user at the end.
std::vector<std::string> array_options(const fs::path& folder, const std::string& tasks, std::optional<int64_t> at_once,
                                       const std::vector<std::string>& words) {
  std::vector<std::string> options = {fmt::format("--array={}{}", tasks, at_once ? fmt::format("%{}", *at_once) : ""),
                                      "--chdir=" + folder.string(), "--output=" + folder.string() + "/%a/slurm.out"};
  options.insert(options.end(), words.begin(), words.end());
  return options;
}

/// Writes sweep.json, which should name the `job` that is submitted already. Without it the tasks run all the same.
void note_job(const fs::path& folder, const slurm::Sweep& sweep, const std::string& job) {
  try {
    slurm::write_text(folder / "sweep.json", to_text(sweep));
  } catch (const Error& error) {
    std::cerr << fmt::format("yoke slurm array: warning: the tasks run as job {}, but sweep.json does not say so: {}\n",
                             job, printable(error.what()));
  }
}

int submit_sweep(const SlurmArrayArgs& args, Context& context) {
  std::vector<slurm::SweepParameter> parameters;
  for (const auto& text : args.parameters) parameters.push_back(slurm::parse_parameter(text));
  if (parameters.empty() && args.file.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "give --param NAME=VALUE,VALUE,... or --param-file FILE");
  }
  std::vector<slurm::SweepValues> rows(1);
  if (!args.file.empty()) {
    rows = slurm::parse_parameter_file(read_file(args.file), args.file);
  }
  const auto tasks = slurm::plan_sweep(parameters, with_absolute_files(context.rest), rows);
  for (const auto& [name, _] : rows[0]) parameters.push_back({.name = name, .values = {}});
  const auto warnings = check_program_here({}, context);
  for (const auto& name : slurm::unknown_placeholders(parameters, context.rest)) {
    std::cerr << fmt::format("yoke slurm array: there is no --param {}, so {{{}}} stays as it is\n", name, name);
  }
  const auto folder = sweep_path(args.folder).string();
  slurm::require_plain_folder(folder, "choose another one with --folder");
  const auto script = slurm::sweep_script(tasks, folder, "sweep");
  const auto words = sbatch_words(args.options);
  check_error_path(folder, words, context.environment);
  const auto options = array_options(folder, fmt::format("0-{}", tasks.size() - 1), args.at_once, words);
  if (const auto warning = slurm::unused_tasks_warning(options, context.rest); !warning.empty()) {
    std::cerr << "yoke slurm array: warning: " << warning << '\n';
  }
  if (args.dry_run) {
    context.out << fmt::format("{} tasks; {}\n\n{}", tasks.size(), sbatch_line(options), script);
    return kExitOk;
  }
  if (const auto most = slurm::max_array_size(context.environment);
      most && static_cast<int64_t>(tasks.size()) > *most) {
    throw Error(ErrorCode::kInvalidArgument,
                "the sweep has {0} combinations, and arrays of this cluster have at most {1} tasks (MaxArraySize={1}); "
                "divide the values among {2} sweeps with a --folder each",
                tasks.size(), *most, (static_cast<int64_t>(tasks.size()) + *most - 1) / std::max<int64_t>(*most, 1));
  }
  if (fs::exists(fs::path(folder) / "sweep.json")) {
    throw Error(ErrorCode::kFailedPrecondition, "{} has another sweep; choose another folder with --folder",
                printable(folder));
  }
  slurm::Sweep sweep{.tasks = tasks, .job = "", .folder = folder, .options = words, .at_once = args.at_once};
  const HeldSignals held;
  const auto submission = make_sweep(folder, sweep, script, options, context.environment);
  const auto& job = sweep.job = submission.job_id;
  sweep.cluster = submission.cluster.empty() ? slurm::cluster_here(context.environment) : submission.cluster;
  for (const auto& message : submission.messages) std::cerr << "sbatch: " << message << '\n';
  note_job(folder, sweep, job);
  if (args.json) {
    context.out << ArrayJson{{"job", job}, {"folder", folder}, {"num_tasks", tasks.size()}, {"warnings", warnings}}
                       .dump(2, ' ', false, ArrayJson::error_handler_t::replace)
                << '\n';
  } else {
    context.out << fmt::format("job {}: {} task{} in {}\n  yoke slurm ps {}\n  yoke slurm array --collect {}\n", job,
                               tasks.size(), tasks.size() == 1 ? "" : "s", printable(folder), job, job);
  }
  context.out.flush();
  return kExitOk;
}

/// The script of the sweep, as it was submitted. Errors  kNotFound: it is not there, or not of this user.
/// kFailedPrecondition: it would run the tasks in the folder where the sweep was before.
std::string script_of_sweep(const SweepFolder& folder) {
  const auto file = folder.path / "sweep.sh";
  const auto script = slurm::read_own_file(file, slurm::kMaxSweepBytes);
  if (!script) {
    const auto why = slurm::why_not_own(file);
    throw Error(ErrorCode::kNotFound, "the tasks cannot run again without the script of the sweep: {}",
                why.empty() ? printable(file.string()) + " cannot be read or is too large" : why);
  }
  if (!folder.sweep.folder.empty() && folder.sweep.folder != folder.path) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        "the tasks cannot run again in {}: the sweep was submitted in {}, and its script runs them there; use that "
        "path",
        printable(folder.path.string()), printable(folder.sweep.folder));
  }
  return *script;
}

/// Slurm would truncate what the tasks have printed. A file with the job in its name is another one next time.
void keep_outputs(slurm::KeptOutputs& kept, const SweepFolder& folder, const slurm::SweepRerun& rerun) {
  const auto errors = error_path(rerun.options);
  for (const auto task : rerun.tasks) {
    kept.keep((folder.of_task(static_cast<size_t>(task)) / "slurm.out").string());
    slurm::Job job{.number = 1, .array = 1, .array_task = std::to_string(task), .folder = folder.path.string()};
    const auto path = slurm::expand_path(errors, job);
    job.number = 2;
    job.array = 2;
    if (path == slurm::expand_path(errors, job)) kept.keep(path);
  }
}

/// Submits the tasks, and adds them to the sweep.
void submit_tasks(SweepFolder& folder, slurm::SweepRerun rerun, const std::string& script,
                  const std::vector<std::string>& options, const Environment& environment) {
  slurm::KeptOutputs kept;
  try {
    keep_outputs(kept, folder, rerun);
    const auto submission = slurm::submit(script, environment, options);
    for (const auto& message : submission.messages) std::cerr << "sbatch: " << message << '\n';
    rerun.job = submission.job_id;
  } catch (const Error& error) {
    if (!may_run(error)) kept.undo();
    throw;
  }
  folder.sweep.reruns.push_back(std::move(rerun));
  note_job(folder.path, folder.sweep, folder.sweep.reruns.back().job);
}

int rerun_sweep(const SlurmArrayArgs& args, Context& context) {
  if (const auto job = slurm::parse_job_name(args.rerun); job && job->task) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "--rerun {0} names one task, but runs all again that have failed; `yoke slurm resume {0}` puts one back",
        args.rerun);
  }
  auto folder = open_sweep(args.rerun, context.environment);
  const auto states = sweep_states(folder, context.environment);
  if (states.unanswered) {
    throw Error(states.unanswered->code(), "no task is run again, because it is not known which ones have ended: {}",
                states.unanswered->what());
  }
  const auto plan =
      slurm::plan_rerun(folder.sweep, states.tasks, {.options = sbatch_words(args.options), .growth = args.growth});
  const auto script = plan.empty() ? "" : script_of_sweep(folder);
  const auto at_once = args.at_once ? args.at_once : folder.sweep.at_once;
  auto json = ArrayJson::array(), failed = json;
  std::optional<Error> failure;  // what was submitted before it is printed all the same
  const HeldSignals held;
  for (const auto& rerun : plan) {
    const auto tasks = slurm::to_task_list(rerun.tasks);
    const auto options = array_options(folder.path, tasks, at_once, rerun.options);
    if (args.dry_run) {
      if (args.json) json.push_back({{"job", nullptr}, {"tasks", rerun.tasks}, {"options", rerun.options}});
      if (!args.json) context.out << sbatch_line(options) << '\n';
      continue;
    }
    try {
      if (!failure || failure->code() == ErrorCode::kFailedPrecondition) {
        submit_tasks(folder, rerun, script, options, context.environment);
      } else {  // a Slurm that does not answer would keep each of them waiting
        failed.push_back(
            {{"tasks", rerun.tasks}, {"options", rerun.options}, {"error", "not tried"}, {"may_run", false}});
        continue;
      }
    } catch (const Error& error) {
      failed.push_back(
          {{"tasks", rerun.tasks}, {"options", rerun.options}, {"error", error.what()}, {"may_run", may_run(error)}});
      if (plan.size() > 1) {
        std::cerr << fmt::format("{}task{} {}: {}\n", speaker(context), rerun.tasks.size() == 1 ? "" : "s", tasks,
                                 printable(error.what()));
      }
      if (!failure || error.code() != ErrorCode::kFailedPrecondition) failure = error;
      continue;
    }
    const auto& job = folder.sweep.reruns.back().job;
    if (args.json) {
      json.push_back({{"job", job}, {"tasks", rerun.tasks}, {"options", rerun.options}});
    } else {
      context.out << fmt::format("job {}: task{} {} again{}{}\n", job, rerun.tasks.size() == 1 ? "" : "s", tasks,
                                 rerun.options.empty() ? "" : ", with ",
                                 printable(fmt::format("{}", fmt::join(rerun.options, " "))));
      context.out.flush();  // a later one may be refused
    }
  }
  if (args.json) {
    context.out << ArrayJson{{"folder", folder.path.string()}, {"reruns", json}, {"failed", failed}}.dump(
                       2, ' ', false, ArrayJson::error_handler_t::replace)
                << '\n';
  } else if (plan.empty()) {
    const auto is_open = [](const slurm::SweepState& state) { return state.end == slurm::SweepEnd::kNotEnded; };
    const auto num_open = std::ranges::count_if(states.tasks, is_open);
    context.out << fmt::format("no task has failed; {} of {} have not ended\n", num_open, states.tasks.size());
  } else if (!args.dry_run && failed.size() < plan.size()) {
    context.out << fmt::format(
        "what they printed before is beside, in slurm.out.0 and so on\n"
        "  yoke slurm array --collect {}\n",
        shell_word(printable(folder.path.string())));
  }
  context.out.flush();
  if (!failure) return kExitOk;
  if (plan.size() == 1) throw *failure;
  if (!may_run(*failure)) {
    throw Error(failure->code(), "{} of {} arrays were not submitted; --rerun submits their tasks later", failed.size(),
                plan.size());
  }
  const auto num_others = failed.size() - 1;  // nothing is tried after an array of which this is not known
  throw Error(
      failure->code(),
      "it is not known whether 1 of {} arrays was submitted; look at `squeue --me` before another --rerun, which "
      "would start its tasks twice{}",
      plan.size(),
      num_others == 0 ? "" : fmt::format(". {} more {} not submitted", num_others, num_others == 1 ? "was" : "were"));
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
  if (is_collecting) {
    return collect_sweep({.sweep = args.collect, .json = args.json, .csv = args.csv}, context);
  }
  if (is_rerunning) return rerun_sweep(args, context);
  if (context.rest.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "give a program, as in `yoke slurm array --param lr=0.1,0.01 -- ./train --lr {lr}`");
  }
  return submit_sweep(args, context);
}

}  // namespace

void add_slurm_array(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<SlurmArrayArgs>();  // CLI11 keeps references to *args; the callback owns it
  args->folder = "sweep";
  cmd.add_option("--param", args->parameters,
                 "A parameter and its values; in the program's words {NAME} becomes a value")
      ->type_name("NAME=VALUE,...")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  cmd.add_option("--param-file", args->file,
                 "CSV: the first line has names, each other one the values of a task, \"4,8\" with commas in quotes")
      ->type_name("FILE");
  cmd.add_option("--folder", args->folder, "Where each task gets a folder, which all nodes must see")
      ->type_name("FOLDER")
      ->capture_default_str();
  add_number(cmd, "--at-once", args->at_once, {"N", 1, 1e6}, "Run at most N tasks at the same time");
  cmd.add_option("--sbatch", args->options, "Options of sbatch for each task, as '-t 1:00:00 --gpus-per-node=1'")
      ->type_name("OPTIONS")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  cmd.add_option("--collect", args->collect, "Show the results of a sweep: its job or its folder")
      ->type_name("JOB|FOLDER");
  cmd.add_option("--rerun", args->rerun, "Submit the tasks of a sweep again that failed or never started")
      ->type_name("JOB|FOLDER");
  add_number(cmd, "--grow", args->growth, {"FACTOR", 1, 1000},
             "With --rerun: tasks that ran out of memory or time get FACTOR times as much of it");
  cmd.add_flag("--csv", args->csv, "With --collect: print CSV");
  cmd.add_flag("--json", args->json, "Print JSON");
  cmd.add_flag("--dry-run", args->dry_run, "Print the script and the command line of sbatch, and submit nothing");
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
  cmd.callback([args, &context] { context.exit_code = run_slurm_array(*args, context); });
}

}  // namespace yoke::cli

#include "yoke/slurm/job/array_submission.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "yoke/base/file.h"
#include "yoke/base/quantity.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/slurm/check/script.h"
#include "yoke/slurm/job/job_folder.h"
#include "yoke/slurm/job/job_note.h"
#include "yoke/slurm/job/outputs.h"
#include "yoke/slurm/job/query.h"
#include "yoke/slurm/script/plan.h"
#include "yoke/slurm/words/options.h"
#include "yoke/slurm/words/programs.h"
#include "yoke/slurm/words/request.h"

namespace yoke::slurm {
namespace {

namespace fs = std::filesystem;

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
void check_form_of_time(const check::GivenOption& option) {
  const auto length = parse_length(option.value);
  if (!length || check::parse_minutes(option.value)) return;
  throw Error(ErrorCode::kInvalidArgument, "--sbatch '{0} {1}': sbatch does not know this form; write {0} {2}",
              printable(option.written), printable(option.value), slurm_time(option.value));
}

/// The words of all --sbatch, separated as in a line of #SBATCH. Errors  kInvalidArgument: there is an option that the
/// sweep itself sets, or another word, or a quote is not closed.
std::vector<std::string> sbatch_words(const std::vector<std::string>& all_options) {
  const auto options = fmt::format("{}", fmt::join(all_options, " "));
  const auto line = check::read_directive(options, 1);
  if (line.unmatched_quote != 0 || line.has_hash) {
    throw Error(ErrorCode::kInvalidArgument, "--sbatch {}: {}", printable(options),
                line.has_hash ? "a # begins a comment; put the value into quotes" : "a quote is not closed");
  }
  const auto parsed = check::parse_options(check::kSbatch, check::option_words(line.words));
  constexpr std::array<std::string_view, 7> kOwn = {"array",     "chdir", "output",  "wrap",
                                                    "test-only", "wait",  "parsable"};
  for (const auto& option : parsed.given) {
    if (option.spec->name == std::string_view("time")) check_form_of_time(option);
    if (std::ranges::find(kOwn, option.spec->name) == kOwn.end()) continue;
    throw Error(ErrorCode::kInvalidArgument, "--sbatch {}: the sweep sets this option itself, or cannot use it",
                printable(option.written));
  }
  if (parsed.num_used < line.words.size()) {
    throw Error(ErrorCode::kInvalidArgument, "--sbatch {}: this is no option; write a value as --option=value",
                printable(line.words[parsed.num_used]));
  }
  return line.words;
}

/// Errors  kInvalidArgument: Slurm could not write --error, and the tasks would fail without a word. Relative paths are
/// in the folder of the sweep, which has no other folders than those of its tasks.
void check_error_path(const fs::path& folder, const std::vector<std::string>& options, const Environment& environment) {
  const fs::path path = output_option(check::option_words(options), 'e');
  const auto parent = path.parent_path();
  std::error_code ignored;
  const bool is_there = parent.empty() || parent == "%a" || parent == "./%a" ||
                        fs::is_directory((folder / parent).lexically_normal(), ignored);
  if (is_there || (path.is_absolute() && !missing_output_folder(path, "/"))) return;
  if (const auto version = installed_version(environment); version && *version >= Version{23, 2, 0}) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      "--sbatch --error={0}: there is no folder {1}, and Slurm before 23.02 does not make it; give %a/{2}, which "
      "is in the folder of each task, or the path of a folder that is there",
      printable(path.string()), printable(parent.string()), printable(path.filename().string()));
}

/// The words of sbatch for `tasks`, a list such as "0-9", with those of the user at the end.
std::vector<std::string> array_options(const fs::path& folder, const std::string& tasks, std::optional<int64_t> at_once,
                                       const std::vector<std::string>& words) {
  std::vector<std::string> options = {fmt::format("--array={}{}", tasks, at_once ? fmt::format("%{}", *at_once) : ""),
                                      "--chdir=" + folder.string(), "--output=" + folder.string() + "/%a/slurm.out"};
  options.insert(options.end(), words.begin(), words.end());
  return options;
}

/// Makes the folders and files of a sweep, and submits it.
Submission make_sweep(const PlannedArray& array, const Environment& environment, const Tell& tell) {
  const fs::path folder = array.sweep.folder;
  const auto num_tasks = array.sweep.tasks.size();
  try {
    for (size_t i = 0; i < num_tasks; ++i) fs::create_directories(folder / std::to_string(i));
    replace_file(folder / "sweep.sh", array.script);
    replace_file(folder / "sweep.json", to_text(array.sweep));
    return submit_and_tell(array.script, environment, array.options, tell);
  } catch (const Error& error) {
    if (!may_be_queued(error)) remove_sweep(folder, num_tasks);
    throw;
  } catch (const fs::filesystem_error& error) {
    remove_sweep(folder, num_tasks);
    throw system_error(error.code().value(), "making the folders of the sweep in " + folder.string());
  }
}

/// Writes sweep.json, which should name the `job` that is submitted already. Without it the tasks run all the same.
void note_job(const fs::path& folder, const Sweep& sweep, const std::string& job, const Tell& tell) {
  try {
    replace_file(folder / "sweep.json", to_text(sweep));
  } catch (const Error& error) {
    tell(Told::kWarning,
         fmt::format("the tasks run as job {}, but sweep.json does not say so: {}", job, printable(error.what())));
  }
}

/// The script of the sweep, as it was submitted. Errors  kNotFound: it is not there, or not of this user.
/// kFailedPrecondition: it would run the tasks in the folder where the sweep was before.
std::string script_of_sweep(const SweepFolder& folder) {
  const auto file = folder.path / "sweep.sh";
  const auto script = read_own_file(file, kMaxSweepBytes);
  if (!script) {
    const auto why = why_not_own(file);
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
void keep_outputs(KeptOutputs& kept, const SweepFolder& folder, const SweepRerun& rerun) {
  const auto errors = output_option(check::option_words(rerun.options), 'e');
  for (const auto task : rerun.tasks) {
    kept.keep((folder.of_task(static_cast<size_t>(task)) / "slurm.out").string());
    Job job{.number = 1, .array = 1, .array_task = std::to_string(task), .folder = folder.path.string()};
    const auto path = expand_path(errors, job);
    job.number = 2;
    job.array = 2;
    if (path == expand_path(errors, job)) kept.keep(path);
  }
}

/// Submits the tasks, and adds them to the sweep. Returns the number of their array.
std::string submit_tasks(PlannedReruns& plan, SweepRerun rerun, const Environment& environment, const Tell& tell) {
  auto& folder = plan.folder;
  KeptOutputs kept;
  try {
    keep_outputs(kept, folder, rerun);
    rerun.job = submit_and_tell(plan.script, environment, plan.options_of(rerun), tell).job_id;
  } catch (const Error& error) {
    if (!may_be_queued(error)) kept.undo();
    throw;
  }
  const auto job = rerun.job;
  folder.sweep.reruns.push_back(std::move(rerun));
  note_job(folder.path, folder.sweep, job, tell);
  return job;
}

}  // namespace

bool may_be_queued(const Error& error) {
  return error.code() == ErrorCode::kTimeout || error.code() == ErrorCode::kDataLoss;
}

std::string sbatch_line(const std::vector<std::string>& options) {
  std::string line = "sbatch";
  for (const auto& option : options) line += " " + shell_word(printable(option));
  return line + " <sweep.sh";
}

ArrayTasks plan_tasks(const ArrayRequest& request) {
  std::vector<SweepParameter> parameters;
  for (const auto& text : request.parameters) parameters.push_back(parse_parameter(text));
  if (parameters.empty() && request.parameter_file.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "give --param NAME=VALUE,VALUE,... or --param-file FILE");
  }
  std::vector<SweepValues> rows(1);
  if (!request.parameter_file.empty()) {
    rows = parse_parameter_file(read_file(request.parameter_file), request.parameter_file);
  }
  auto tasks = plan_sweep(parameters, with_absolute_files(request.argv), rows);
  for (const auto& [name, _] : rows[0]) parameters.push_back({.name = name, .values = {}});
  return {std::move(tasks), unknown_placeholders(parameters, request.argv)};
}

PlannedArray plan_array(std::vector<SweepTask> tasks, const ArrayOptions& options, const std::vector<std::string>& argv,
                        const Environment& environment) {
  const auto folder = sweep_path(options.folder).string();
  require_plain_folder(folder, "choose another one with --folder");
  PlannedArray array{.sweep = {.job = "", .folder = folder, .at_once = options.at_once},
                     .script = sweep_script(tasks, folder, "sweep")};
  array.sweep.options = sbatch_words(options.options);
  check_error_path(folder, array.sweep.options, environment);
  array.options = array_options(folder, fmt::format("0-{}", tasks.size() - 1), options.at_once, array.sweep.options);
  array.warning = unused_tasks_warning(array.options, argv);
  array.sweep.tasks = std::move(tasks);
  return array;
}

void check_array(const PlannedArray& array, const Environment& environment) {
  const auto& sweep = array.sweep;
  const auto num_tasks = static_cast<int64_t>(sweep.tasks.size());
  if (const auto most = max_array_size(environment); most && num_tasks > *most) {
    throw Error(ErrorCode::kInvalidArgument,
                "the sweep has {0} combinations, and arrays of this cluster have at most {1} tasks (MaxArraySize={1}); "
                "divide the values among {2} sweeps with a --folder each",
                num_tasks, *most, (num_tasks + *most - 1) / std::max<int64_t>(*most, 1));
  }
  if (fs::exists(fs::path(sweep.folder) / "sweep.json")) {
    throw Error(ErrorCode::kFailedPrecondition, "{} has another sweep; choose another folder with --folder",
                printable(sweep.folder));
  }
}

void submit_array(PlannedArray& array, const Environment& environment, const Tell& tell) {
  auto& sweep = array.sweep;
  const auto submission = make_sweep(array, environment, tell);
  sweep.job = submission.job_id;
  sweep.cluster = cluster_of(submission, environment);
  note_job(sweep.folder, sweep, sweep.job, tell);
}

std::vector<std::string> PlannedReruns::options_of(const SweepRerun& rerun) const {
  return array_options(folder.path, to_task_list(rerun.tasks), at_once, rerun.options);
}

PlannedReruns plan_reruns(const RerunRequest& request, const Environment& environment) {
  if (const auto job = parse_job_name(request.sweep); job && job->task) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "--rerun {0} names one task, but runs all again that have failed; `yoke slurm resume {0}` puts one back",
        request.sweep);
  }
  PlannedReruns plan{.folder = open_sweep(request.sweep, environment), .reruns = {}, .at_once = {}, .script = ""};
  const auto states = sweep_states(plan.folder, environment);
  if (states.unanswered) {
    throw Error(states.unanswered->code(), "no task is run again, because it is not known which ones have ended: {}",
                states.unanswered->what());
  }
  plan.reruns =
      plan_rerun(plan.folder.sweep, states.tasks, {.options = sbatch_words(request.options), .growth = request.growth});
  if (!plan.reruns.empty()) plan.script = script_of_sweep(plan.folder);
  plan.at_once = request.at_once ? request.at_once : plan.folder.sweep.at_once;
  plan.num_tasks = states.tasks.size();
  plan.num_open = static_cast<size_t>(std::ranges::count(states.tasks, SweepEnd::kNotEnded, &SweepState::end));
  return plan;
}

std::optional<Error> submit_reruns(PlannedReruns& plan, const Environment& environment, const Tell& tell,
                                   const std::function<void(const RerunEnd&)>& at_end) {
  std::optional<Error> failure;
  for (const auto& rerun : plan.reruns) {
    RerunEnd end{.rerun = rerun, .failure = {}};
    end.is_tried = !failure || failure->code() == ErrorCode::kFailedPrecondition;
    try {
      if (end.is_tried) end.rerun.job = submit_tasks(plan, rerun, environment, tell);
    } catch (const Error& error) {
      end.failure = error;
      if (!failure || error.code() != ErrorCode::kFailedPrecondition) failure = error;
    }
    at_end(end);
  }
  return failure;
}

Error failure_of_several(const Error& failure, size_t num_failed, size_t num_arrays) {
  if (!may_be_queued(failure)) {
    return {failure.code(), fmt::format("{} of {} arrays were not submitted; --rerun submits their tasks later",
                                        num_failed, num_arrays)};
  }
  const auto num_others = num_failed - 1;  // nothing is tried after an array of which this is not known
  return {
      failure.code(),
      fmt::format("it is not known whether 1 of {} arrays was submitted; look at `squeue --me` before another --rerun, "
                  "which would start its tasks twice{}",
                  num_arrays,
                  num_others == 0
                      ? ""
                      : fmt::format(". {} more {} not submitted", num_others, num_others == 1 ? "was" : "were"))};
}

}  // namespace yoke::slurm

// `yoke slurm array`: submits a sweep as an array of jobs, and collects the results.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/options/slurm.h"
#include "yoke/cli/options/value.h"
#include "yoke/cli/slurm.h"
#include "yoke/cli/slurm_submit.h"
#include "yoke/curve/recording.h"
#include "yoke/slurm/check/options.h"
#include "yoke/slurm/check/script.h"
#include "yoke/slurm/job_folder.h"
#include "yoke/slurm/programs.h"
#include "yoke/slurm/query.h"
#include "yoke/slurm/submit.h"
#include "yoke/slurm/sweep.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;
using ArrayJson = nlohmann::ordered_json;

struct SlurmArrayArgs {
  std::vector<std::string> parameters;
  std::string folder, options, collect;
  std::optional<int64_t> at_once;
  bool json = false, csv = false, dry_run = false;
};

/// The largest index of a task that this cluster accepts, plus one. nullopt if slurmctld does not tell.
std::optional<int64_t> max_array_size(const Environment& environment) {
  const auto text = slurm::ask({"scontrol", "show", "config"}, environment);
  for (const auto line : lines_of(text)) {
    const auto words = words_of(line);
    if (words.size() >= 3 && words[0] == "MaxArraySize") return parse_int(words[2]);
  }
  return std::nullopt;
}

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

/// The words of --sbatch, separated as in a line of #SBATCH. Errors  kInvalidArgument: there is an option that the
/// sweep itself sets, or another word, or a quote is not closed.
std::vector<std::string> sbatch_words(const std::string& options) {
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

/// Makes the folders and files of a sweep, and submits it.
slurm::Submission make_sweep(const fs::path& folder, const slurm::Sweep& sweep, const std::string& script,
                             const std::vector<std::string>& options, const Environment& environment) {
  try {
    for (size_t i = 0; i < sweep.tasks.size(); ++i) fs::create_directories(folder / std::to_string(i));
    slurm::write_text(folder / "sweep.sh", script);
    slurm::write_text(folder / "sweep.json", to_text(sweep));
    return slurm::submit(script, environment, options);
  } catch (const Error& error) {
    const bool may_run = error.code() == ErrorCode::kTimeout || error.code() == ErrorCode::kDataLoss;
    if (!may_run) remove_sweep(folder, sweep.tasks.size());
    throw;
  } catch (const fs::filesystem_error& error) {
    remove_sweep(folder, sweep.tasks.size());
    throw system_error(error.code().value(), "making the folders of the sweep in " + folder.string());
  }
}

int submit_sweep(const SlurmArrayArgs& args, Context& context) {
  std::vector<slurm::SweepParameter> parameters;
  for (const auto& text : args.parameters) parameters.push_back(slurm::parse_parameter(text));
  if (parameters.empty()) throw Error(ErrorCode::kInvalidArgument, "give --param NAME=VALUE,VALUE,... at least once");
  const auto tasks = slurm::plan_sweep(parameters, with_absolute_files(context.rest));
  check_program_here({}, context);
  for (const auto& name : slurm::unknown_placeholders(parameters, context.rest)) {
    std::cerr << fmt::format("yoke slurm array: there is no --param {}, so {{{}}} stays as it is\n", name, name);
  }
  const auto folder = fs::absolute(args.folder).string();
  if (folder.find('%') != folder.npos || folder.find('\n') != folder.npos) {
    throw Error(ErrorCode::kInvalidArgument,
                "Slurm would replace the % in the folder {}; choose another one with --folder", printable(folder));
  }
  const auto script = slurm::sweep_script(tasks, folder, "sweep");
  std::vector<std::string> options = {
      fmt::format("--array=0-{}{}", tasks.size() - 1, args.at_once ? fmt::format("%{}", *args.at_once) : ""),
      "--chdir=" + folder, "--output=" + folder + "/%a/slurm.out"};
  for (auto& word : sbatch_words(args.options)) options.push_back(std::move(word));
  if (const auto warning = slurm::unused_tasks_warning(options, context.rest); !warning.empty()) {
    std::cerr << "yoke slurm array: warning: " << warning << '\n';
  }
  if (args.dry_run) {
    context.out << fmt::format("{} tasks; {}\n\n{}", tasks.size(),
                               printable(fmt::format("sbatch {} <sweep.sh", fmt::join(options, " "))), script);
    return kExitOk;
  }
  if (const auto most = max_array_size(context.environment); most && static_cast<int64_t>(tasks.size()) > *most) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "the sweep has {} combinations, and this cluster's arrays have at most {} tasks (MaxArraySize); divide the "
        "values among several sweeps",
        tasks.size(), *most);
  }
  if (fs::exists(fs::path(folder) / "sweep.json")) {
    throw Error(ErrorCode::kFailedPrecondition, "{} has another sweep; choose another folder with --folder",
                printable(folder));
  }
  slurm::Sweep sweep{.tasks = tasks, .job = ""};
  const HeldSignals held;
  const auto submission = make_sweep(folder, sweep, script, options, context.environment);
  const auto& job = sweep.job = submission.job_id;
  sweep.cluster = submission.cluster.empty() ? cluster_here(context.environment) : submission.cluster;
  for (const auto& message : submission.messages) std::cerr << "sbatch: " << message << '\n';
  try {
    slurm::write_text(fs::path(folder) / "sweep.json", to_text(sweep));
  } catch (const Error& error) {
    std::cerr << fmt::format(
        "yoke slurm array: warning: the sweep runs as job {}, but sweep.json does not say so: {}\n", job,
        printable(error.what()));
  }
  if (args.json) {
    context.out << ArrayJson{{"job", job}, {"folder", folder}, {"num_tasks", tasks.size()}}.dump(2) << '\n';
  } else {
    context.out << fmt::format("job {}: {} task{} in {}\n  yoke slurm ps {}\n  yoke slurm array --collect {}\n", job,
                               tasks.size(), tasks.size() == 1 ? "" : "s", printable(folder), job, job);
  }
  context.out.flush();
  return kExitOk;
}

/// The folder of a sweep that a user names by its job or by the folder itself.
fs::path sweep_folder(const std::string& name, const Environment& environment) {
  std::error_code ignored;
  const auto job = slurm::parse_job_name(name);
  if (!job || fs::exists(fs::path(name) / "sweep.json", ignored)) return name;
  for (const auto& known : slurm::known_jobs(*job, environment)) {
    if (!known.folder.empty()) return known.folder;
  }
  for (const auto& account : slurm::accounts_of(*job, environment)) {
    if (!account.job.folder.empty()) return account.job.folder;
  }
  throw Error(ErrorCode::kNotFound, "Slurm knows no job {}; give the folder of the sweep instead", name);
}

struct SweepResult {
  std::string state;  ///< "done", "failed (3)", "failed (TIMEOUT)", "not ended", "not known"
  bool has_ended = false, has_failed = false, is_known = true;
  std::vector<std::pair<std::string, double>> metrics;  ///< The last value of each.
};

SweepResult result_of(const fs::path& folder) {
  SweepResult result{.state = "not ended", .metrics = {}};
  try {
    const auto text = read_regular_file(folder / "status", 64);
    const auto status = parse_int(std::string_view(text).substr(0, text.find('\n'))).value_or(-1);
    result.has_ended = true;
    result.has_failed = status != 0;
    result.state = status == 0 ? "done" : fmt::format("failed ({})", status);
  } catch (const Error&) {  // it has not ended, or a signal ended its script
  }
  const auto take = [&](const fs::path& run) {
    for (const auto& curve : curve::read_run(run).curves) {
      if (!curve.values.empty()) result.metrics.emplace_back(curve.metric, curve.values.back());
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
  return result;
}

/// Where a sweep is. Its number may by now be that of another job, and of one of another cluster.
struct SweepPlace {
  fs::path folder;
  std::string cluster;
};

/// Completes the results of tasks that left no status by what Slurm says of them: a time limit, a lack of memory or
/// scancel ends a script before it can write. Returns why Slurm could not tell, if so.
std::optional<Error> ask_for_ends(std::vector<SweepResult>& results, const slurm::JobName& job, const SweepPlace& place,
                                  const Environment& environment) {
  using States = std::map<int64_t, std::string>;  // by index; empty: the task has not ended
  States states;
  bool is_list_cut = false;  // Slurm cuts long lists of tasks that wait
  const auto add = [&](States& to, const slurm::Job& task) {
    std::error_code error;
    if (fs::exists(task.folder, error) && !fs::equivalent(task.folder, place.folder, error)) return;
    const auto tasks = slurm::array_tasks_of(task);
    is_list_cut |= tasks.empty() && !task.has_ended();
    for (const auto index : tasks) to[index] = task.has_ended() ? task.state : "";
  };
  const auto is_complete = [&] {
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].has_ended && !states.contains(static_cast<int64_t>(i))) return false;
    }
    return true;
  };
  try {
    require_cluster(place.cluster, "the sweep", environment);
    for (const auto& task : slurm::known_jobs(job, environment)) add(states, task);
  } catch (const Error& error) {
    for (auto& result : results) {
      if (!result.has_ended) result.state = "not known", result.is_known = false;
    }
    return error;
  }
  if (!is_complete() && !is_list_cut) {
    try {
      States forgotten;
      for (const auto& account : slurm::accounts_of(job, environment)) {
        add(forgotten, account.job);  // the last run counts
      }
      // slurmctld forgets no task that has not ended, whatever the accounts have.
      std::erase_if(forgotten, [](const auto& one) { return one.second.empty(); });
      states.merge(forgotten);
    } catch (const Error&) {  // no accounts
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    auto& result = results[i];
    if (result.has_ended) continue;
    const auto found = states.find(static_cast<int64_t>(i));
    if (found != states.end() && !found->second.empty()) {
      result.has_ended = true;
      result.has_failed = found->second != "COMPLETED";
      result.state = result.has_failed ? fmt::format("failed ({})", printable(found->second)) : "done";
    } else if (found == states.end() && !is_list_cut) {
      result.state = "not known";
      result.is_known = false;
    }
  }
  if (std::ranges::all_of(results, &SweepResult::is_known)) return std::nullopt;
  return Error(ErrorCode::kNotFound, "Slurm does not know them any more");
}

/// Says on standard error what a script or a user should know about the tasks. Returns the exit status.
int tell_ends(const std::vector<SweepResult>& results, const fs::path& folder, const std::optional<Error>& unanswered) {
  bool has_failed = false;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].has_failed) continue;
    has_failed = true;
    std::cerr << fmt::format("yoke slurm array: task {} {}; its output is {}\n", i, results[i].state,
                             printable((folder / std::to_string(i) / "slurm.out").string()));
  }
  const auto has_more = [](const SweepResult& result) { return !result.has_ended && result.is_known; };
  const auto num_unended = std::ranges::count_if(results, has_more);
  if (num_unended > 0) {
    std::cerr << fmt::format("yoke slurm array: {} of {} tasks {} not ended\n", num_unended, results.size(),
                             num_unended == 1 ? "has" : "have");
  }
  if (unanswered) {
    std::cerr << fmt::format("yoke slurm array: it is not known whether all tasks without a status have ended: {}\n",
                             printable(unanswered->what()));
  }
  // A loop may wait for tasks and for an answer, but what Slurm has forgotten it does not learn again.
  if (num_unended > 0 || (unanswered && unanswered->code() == ErrorCode::kTimeout)) {
    return exit_status(ErrorCode::kUnavailable);
  }
  if (unanswered) return exit_status(unanswered->code());
  return has_failed ? 1 : kExitOk;
}

int collect_sweep(const SlurmArrayArgs& args, Context& context) {
  const auto folder = sweep_folder(args.collect, context.environment);
  if (std::error_code ignored; !fs::exists(folder / "sweep.json", ignored)) {
    throw Error(
        ErrorCode::kNotFound,
        "{} has no sweep (no sweep.json); give the folder or the job of a sweep that `yoke slurm array` submitted",
        printable(folder.string()));
  }
  const auto file = folder / "sweep.json";
  const auto sweep = slurm::parse_sweep(read_regular_file(file, slurm::kMaxSweepBytes), file.string());
  const auto& tasks = sweep.tasks;
  std::vector<SweepResult> results;
  for (size_t i = 0; i < tasks.size(); ++i) results.push_back(result_of(folder / std::to_string(i)));
  const auto job = slurm::parse_job_name(sweep.job.empty() ? args.collect : sweep.job);
  std::optional<Error> unanswered;
  if (!std::ranges::all_of(results, &SweepResult::has_ended)) {
    unanswered = job ? ask_for_ends(results, *job, {folder, sweep.cluster}, context.environment)
                     : Error(ErrorCode::kNotFound, "{} does not say which job the sweep is", printable(file.string()));
  }
  std::vector<std::string> metrics;
  for (const auto& result : results) {
    for (const auto& [name, _] : result.metrics) {
      if (std::ranges::find(metrics, name) == metrics.end()) metrics.push_back(name);
    }
  }
  const auto find = [](const SweepResult& result, const std::string& name) -> std::optional<double> {
    for (const auto& [metric, value] : result.metrics) {
      if (metric == name) return value;
    }
    return std::nullopt;
  };
  if (args.json) {
    ArrayJson json = {{"folder", fs::absolute(folder).string()}, {"tasks", ArrayJson::array()}};
    for (size_t i = 0; i < tasks.size(); ++i) {
      auto parameters = ArrayJson::object(), values = ArrayJson::object();
      for (const auto& [name, value] : tasks[i].parameters) parameters[name] = value;
      for (const auto& [name, value] : results[i].metrics)
        values[name] = std::isfinite(value) ? ArrayJson(value) : ArrayJson();
      json["tasks"].push_back(
          {{"task", i}, {"state", results[i].state}, {"parameters", parameters}, {"metrics", values}});
    }
    context.out << json.dump(2, ' ', false, ArrayJson::error_handler_t::replace) << '\n';
  } else {
    Table table{.columns = {{"task", Align::kRight}, {"state"}}, .rows = {}};
    for (const auto& [name, _] : tasks.empty() ? decltype(slurm::SweepTask::parameters)() : tasks[0].parameters) {
      table.columns.push_back({name, Align::kRight});
    }
    for (const auto& name : metrics) table.columns.push_back({name, Align::kRight});
    for (size_t i = 0; i < tasks.size(); ++i) {
      std::vector<std::string> row = {std::to_string(i), results[i].state};
      for (const auto& [_, value] : tasks[i].parameters) row.push_back(value);
      for (const auto& name : metrics) {
        const auto value = find(results[i], name);
        row.push_back(value ? fmt::format("{:.6g}", *value) : args.csv ? "" : "-");
      }
      row.resize(table.columns.size());
      table.rows.push_back(std::move(row));
    }
    context.out << (args.csv ? to_csv(table) : to_text(table, output_width(context)));
  }
  return tell_ends(results, folder, unanswered);
}

int run_slurm_array(const SlurmArrayArgs& args, Context& context) {
  const bool is_collecting = !args.collect.empty();
  if (is_collecting && (!args.parameters.empty() || !context.rest.empty())) {
    throw Error(ErrorCode::kInvalidArgument,
                "--collect shows a sweep that was submitted; it takes no program and no --param");
  }
  if (!is_collecting && context.rest.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "give a program, as in `yoke slurm array --param lr=0.1,0.01 -- ./train --lr {lr}`");
  }
  if (args.csv && !is_collecting) throw Error(ErrorCode::kInvalidArgument, "--csv needs --collect");
  return is_collecting ? collect_sweep(args, context) : submit_sweep(args, context);
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
  cmd.add_option("--folder", args->folder, "Where each task gets a folder, which all nodes must see")
      ->type_name("FOLDER")
      ->capture_default_str();
  add_number(cmd, "--at-once", args->at_once, {"N", 1, 1e6}, "Run at most N tasks at the same time");
  cmd.add_option("--sbatch", args->options, "Options of sbatch for each task, as '-t 1:00:00 --gpus-per-node=1'")
      ->type_name("OPTIONS");
  cmd.add_option("--collect", args->collect, "Show the results of a sweep: its job or its folder")
      ->type_name("JOB|FOLDER");
  cmd.add_flag("--csv", args->csv, "With --collect: print CSV");
  cmd.add_flag("--json", args->json, "Print JSON");
  cmd.add_flag("--dry-run", args->dry_run, "Print the script and the command line of sbatch, and submit nothing");
  add_program(cmd, "PROGRAM", "What each task runs, with its arguments; every word from here on is its own");
  cmd.footer(
      examples("  yoke slurm array --param lr=0.1,0.01 --param batch=32,64 --sbatch '-t 1:00:00 --gpus-per-node=1' \\\n"
               "      -- python train.py --lr {lr} --batch {batch}    four tasks, in sweep/0 to sweep/3\n"
               "  yoke slurm array --collect sweep                    the last metrics of each, and what failed\n"
               "  yoke slurm array --collect 4131 --csv >results.csv\n"
               "\n"
               "Each task runs in a folder of its own. Words of the program that name files here are made\n"
               "absolute. Metrics are what `yoke curve` reads: metrics.csv, JSON lines, TensorBoard's files.\n"
               "\n"
               "Exit status: 0; with --collect 75 if a task has not ended, else 66 if Slurm has forgotten how a task\n"
               "ended, else 1 if a task has failed; 75 if slurmctld or munge cannot be reached.\n"
               "To wait: while yoke slurm array --collect sweep >results; [ $? = 75 ]; do sleep 60; done"));
  cmd.callback([args, &context] { context.exit_code = run_slurm_array(*args, context); });
}

}  // namespace yoke::cli

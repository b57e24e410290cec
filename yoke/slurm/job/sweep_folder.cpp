#include "yoke/slurm/job/sweep_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "yoke/base/file.h"
#include "yoke/base/json.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/slurm/job/account.h"
#include "yoke/slurm/job/job_note.h"
#include "yoke/slurm/job/query.h"

namespace yoke::slurm {
namespace {

namespace fs = std::filesystem;

/// The folder of the sweep of a job, where all tasks start.
fs::path folder_of_job(const JobName& job, const std::string& name, const Environment& environment) {
  for (const auto& known : known_jobs(job, environment)) {
    if (!known.folder.empty()) return known.folder;
  }
  for (const auto& account : accounts_of(job, environment)) {
    if (!account.job.folder.empty()) return account.job.folder;
  }
  throw Error(ErrorCode::kNotFound, "Slurm knows no job {}; give the folder of the sweep instead", name);
}

/// Slurm uses numbers again, so a job with the number of a sweep may be another one.
bool is_of_sweep(const Job& job, const Sweep& sweep) {
  return job.folder.empty() || sweep.folder.empty() || job.folder == sweep.folder;
}

/// What the accounts have of the last run of each task that has ended. Empty if there are no accounts.
std::map<int64_t, Account> ended_accounts(const JobName& job, const Sweep& sweep, const Environment& environment) {
  std::map<int64_t, Account> last;
  try {
    for (const auto& account : accounts_of(job, environment)) {
      // slurmctld forgets no task that has not ended, whatever the accounts have.
      if (!account.job.has_ended() || !is_of_sweep(account.job, sweep)) continue;
      for (const auto task : array_tasks_of(account.job)) last[task] = account;
    }
  } catch (const Error&) {  // no accounts
  }
  return last;
}

/// Adds what slurmctld knows about the tasks that are in `job` now, and what the accounts have of those that it has
/// forgotten. Errors  those of known_jobs(); kUnavailable: a list of tasks cannot be read.
void add_answers(std::vector<SweepEvidence>& evidence, const std::string& job, const Sweep& sweep,
                 const Environment& environment) {
  const auto name = require_job_name(job);
  for (const auto& known : known_jobs(name, environment)) {
    if (!is_of_sweep(known, sweep)) continue;
    const auto tasks = array_tasks_of(known);
    if (tasks.empty() && !known.has_ended()) {
      throw Error(ErrorCode::kUnavailable, "slurmctld does not say which tasks of job {} are {}", job, known.state);
    }
    for (const auto task : tasks) {
      if (task >= static_cast<int64_t>(evidence.size())) continue;
      auto& one = evidence[static_cast<size_t>(task)];
      if (one.jobs.back() == job) one.task = known;
    }
  }
  const auto is_open = [&](const SweepEvidence& one) {
    if (one.jobs.back() != job || (one.status && one.status->code == 0)) return false;
    // Perhaps a process was killed for want of memory: of a step, only the accounts know that.
    return !one.task || (one.status && one.task->state == "FAILED");
  };
  if (std::ranges::none_of(evidence, is_open)) return;
  for (const auto& [task, account] : ended_accounts(name, sweep, environment)) {
    if (task >= static_cast<int64_t>(evidence.size())) continue;
    auto& one = evidence[static_cast<size_t>(task)];
    if (!is_open(one)) continue;
    if (!one.task) one.task = account.job;
    one.is_out_of_memory = account.is_out_of_memory;
  }
}

size_t num_tasks_with(const SweepResults& results, SweepEnd end) {
  return static_cast<size_t>(std::ranges::count(results.states.tasks, end, &SweepState::end));
}

/// The job of the task's last run, as "12_0"; empty if its array is not known.
std::string job_of_task(const SweepResults& results, size_t task) {
  const auto job = jobs_of_task(results.folder.sweep, static_cast<int64_t>(task)).back();
  return job.empty() ? "" : fmt::format("{}_{}", job, task);
}

/// Whether it is known of all tasks how they ended, and whether Slurm may still tell it.
struct Knowledge {
  bool has_failed = false, is_open = false, may_answer = false;
  ErrorCode code = ErrorCode::kNotFound;
};

Knowledge knowledge_of(const SweepResults& results) {
  const auto& [tasks, unanswered] = results.states;
  Knowledge known{.has_failed = std::ranges::any_of(tasks, &SweepState::has_failed)};
  // Tasks that had failed may wait again, but a Slurm that is not here has nothing to say about them.
  if (unanswered) known.code = unanswered->code();
  known.may_answer = known.code == ErrorCode::kTimeout || known.code == ErrorCode::kUnavailable;
  known.is_open = num_tasks_with(results, SweepEnd::kNotKnown) > 0 || (known.has_failed && known.may_answer);
  return known;
}

}  // namespace

fs::path sweep_path(const std::string& folder) {
  const auto path = fs::absolute(folder).lexically_normal();
  return path.has_filename() ? path : path.parent_path();  // "sweep/"
}

SweepFolder open_sweep(const std::string& job_or_folder, const Environment& environment) {
  std::error_code ignored;
  const auto job = parse_job_name(job_or_folder);
  const bool is_folder = !job || fs::exists(fs::path(job_or_folder) / "sweep.json", ignored);
  const auto path = is_folder ? sweep_path(job_or_folder) : folder_of_job(*job, job_or_folder, environment);
  const auto file = path / "sweep.json";
  if (!fs::exists(file, ignored)) {
    throw Error(
        ErrorCode::kNotFound,
        "{} has no sweep (no sweep.json); give the folder or the job of a sweep that `yoke slurm array` submitted",
        printable(is_folder ? job_or_folder : path.string()));
  }
  SweepFolder folder{path, parse_sweep(read_regular_file(file, kMaxSweepBytes), file.string())};
  if (folder.sweep.job.empty() && !is_folder) folder.sweep.job = std::to_string(job->number);
  return folder;
}

SweepStates sweep_states(const SweepFolder& folder, const Environment& environment) {
  const auto& sweep = folder.sweep;
  std::vector<SweepEvidence> evidence;
  std::set<std::string> jobs;
  for (size_t i = 0; i < sweep.tasks.size(); ++i) {
    SweepEvidence one{.jobs = jobs_of_task(sweep, static_cast<int64_t>(i))};
    std::error_code ignored;
    one.has_output = fs::exists(folder.of_task(i) / "slurm.out", ignored);
    try {
      one.status = parse_sweep_status(read_regular_file(folder.of_task(i) / "status", 256));
    } catch (const Error&) {  // it has not ended, or Slurm ended its script
    }
    jobs.insert(one.jobs.back());
    evidence.push_back(std::move(one));
  }
  SweepStates states;
  try {
    if (jobs.contains("")) {
      throw Error(ErrorCode::kNotFound,
                  "{} does not say which job the sweep is, because sbatch gave no answer; name the sweep by its number "
                  "in `squeue --me`",
                  printable((folder.path / "sweep.json").string()));
    }
    require_cluster(sweep.cluster, "the sweep in " + folder.path.string(), environment);
    for (const auto& job : jobs) add_answers(evidence, job, sweep, environment);
    for (auto& one : evidence) one.is_answered = true;
  } catch (const Error& error) {
    states.unanswered = error;
  }
  for (const auto& one : evidence) states.tasks.push_back(state_of(one));
  return states;
}

Json to_json(const SweepResults& results) {
  Json json = {{"folder", results.folder.path.string()}, {"tasks", Json::array()}};
  for (size_t i = 0; i < results.states.tasks.size(); ++i) {
    auto parameters = Json::object(), values = Json::object();
    for (const auto& [name, value] : results.folder.sweep.tasks[i].parameters) parameters[name] = value;
    for (const auto& [name, value] : results.metrics[i]) values[name] = std::isfinite(value) ? Json(value) : Json();
    const auto job = job_of_task(results, i);
    json["tasks"].push_back({{"task", i},
                             {"job", job.empty() ? Json() : Json(job)},
                             {"state", results.states.tasks[i].text},
                             {"parameters", parameters},
                             {"metrics", values}});
  }
  return json;
}

Table to_table(const SweepResults& results, const std::string& missing) {
  std::vector<std::string> names;
  for (const auto& one : results.metrics) {
    for (const auto& [name, _] : one) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  const bool is_exact = missing.empty();  // for programs
  const auto& tasks = results.folder.sweep.tasks;
  Table table{.columns = {{"task", Align::kRight}, {"state"}}};
  for (const auto& [name, _] : tasks.empty() ? SweepValues() : tasks[0].parameters) {
    table.columns.push_back({name, Align::kRight});
  }
  for (const auto& name : names) table.columns.push_back({name, Align::kRight});
  for (size_t i = 0; i < tasks.size(); ++i) {
    std::vector<std::string> row = {std::to_string(i), results.states.tasks[i].text};
    for (const auto& [_, value] : tasks[i].parameters) row.push_back(value);
    for (const auto& name : names) {
      const auto found = std::ranges::find(results.metrics[i], name, [](const auto& metric) { return metric.first; });
      row.push_back(found == results.metrics[i].end() ? missing
                    : is_exact                        ? fmt::format("{}", found->second)
                                                      : fmt::format("{:.6g}", found->second));
    }
    row.resize(table.columns.size());
    table.rows.push_back(std::move(row));
  }
  return table;
}

void tell_ends(const SweepResults& results, const Tell& tell) {
  const auto& [tasks, unanswered] = results.states;
  const auto known = knowledge_of(results);
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (!tasks[i].has_failed()) continue;
    const auto job = job_of_task(results, i);
    tell(Told::kNews,
         fmt::format("task {} {}{}{}", i, tasks[i].text, job.empty() ? "" : " as job " + printable(job),
                     tasks[i].end == SweepEnd::kNeverStarted
                         ? ""
                         : "; its output is " + printable((results.folder.of_task(i) / "slurm.out").string())));
  }
  if (known.has_failed) {
    tell(Told::kNews, fmt::format("`yoke slurm array --rerun {}` runs them again",
                                  shell_word(printable(results.folder.path.string()))));
  }
  if (const auto num_open = num_tasks_with(results, SweepEnd::kNotEnded); num_open > 0) {
    tell(Told::kNews,
         fmt::format("{} of {} tasks {} not ended", num_open, tasks.size(), num_open == 1 ? "has" : "have"));
  }
  if (known.is_open) {
    tell(Told::kNews, fmt::format("it is not known whether all tasks have ended: {}",
                                  unanswered ? printable(unanswered->what()) : "Slurm does not know them any more"));
  }
}

int exit_status_of(const SweepResults& results) {
  const auto known = knowledge_of(results);
  // A loop may wait for tasks and for an answer, but what Slurm has forgotten it does not learn again.
  if (num_tasks_with(results, SweepEnd::kNotEnded) > 0 || (known.is_open && known.may_answer)) {
    return exit_status(ErrorCode::kUnavailable);
  }
  if (known.is_open) return exit_status(known.code);
  return known.has_failed ? 1 : 0;
}

}  // namespace yoke::slurm

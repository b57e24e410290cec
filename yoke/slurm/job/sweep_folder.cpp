#include "yoke/slurm/job/sweep_folder.h"

#include <algorithm>
#include <map>
#include <set>

#include "yoke/base/file.h"
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

}  // namespace yoke::slurm

#include "yoke/slurm/job/job_evidence.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <system_error>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/slurm/job/holding.h"
#include "yoke/slurm/job/job_folder.h"
#include "yoke/slurm/job/job_note.h"
#include "yoke/slurm/job/query.h"
#include "yoke/slurm/job/sweep.h"

namespace yoke::slurm {
namespace {

constexpr size_t kMaxSampleBytes = 1 << 20, kMaxSampleFiles = 100'000;

/// Reads the files that samplers of this user wrote. Files of other users are left out.
std::vector<NodeSample> read_samples(int64_t job, const Environment& environment) {
  std::vector<NodeSample> samples;
  const auto parent = samples_folder(environment);
  if (!parent) return samples;
  for (const auto& file : entries_of(fmt::format("{}/{}", *parent, job))) {
    if (file.extension() != ".json" || samples.size() >= kMaxSampleFiles) continue;
    auto sample = parse_sample(read_own_file(file, kMaxSampleBytes).value_or(""));
    if (sample && sample->job == job) samples.push_back(std::move(*sample));
  }
  return samples;
}

/// Adds the samples of the present or last run of this job alone. Its number may also have been that of `others`, or of
/// a job of another cluster with the same homes.
void add_samples_of_run(Evidence& evidence, int64_t number, const std::vector<Account>& others,
                        const Environment& environment) {
  auto samples = read_samples(number, environment);
  const auto* account = account_of_run(evidence);
  SampledRun run;
  run.submitted = evidence.job ? evidence.job->submitted : account ? account->job.submitted : std::nullopt;
  if (evidence.job) run.restart = evidence.job->num_restarts;
  const auto add = [&](const Account& other) {
    const auto& [started, ended] = std::pair(other.job.started, other.job.ended ? other.job.ended : run.submitted);
    if (started) run.others.emplace_back(*started, ended.value_or(*started));
  };
  std::ranges::for_each(others, add);
  for (const auto& earlier : evidence.accounts) {
    if (&earlier != account && !run.restart) add(earlier);  // samples have the number of their restart
  }
  if (std::ranges::any_of(samples, [](const auto& sample) { return !sample.cluster.empty(); })) {
    try {
      if (run.submitted) run.cluster = cluster_name(environment);
    } catch (const Error&) {  // slurmctld does not answer
    }
  }
  for (auto& doubt : keep_samples_of(run, samples)) evidence.doubts.push_back(std::move(doubt));
  evidence.samples = merged_by_host(std::move(samples));
}

/// The job to which FOLDER/slurm.out of `yoke slurm array` belongs: sweep.json lies beside FOLDER.
std::optional<JobName> job_of_sweep(const std::string& word, const Environment& environment) {
  const auto path = std::filesystem::absolute(word);
  const auto task = parse_int(path.parent_path().filename().string());
  const auto file = path.parent_path().parent_path() / "sweep.json";
  if (path.filename() != "slurm.out" || !task) return std::nullopt;
  const auto text = read_own_file(file, kMaxSweepBytes);
  if (!text) return std::nullopt;
  const auto sweep = parse_sweep(*text, file.string());
  require_cluster(sweep.cluster, "the sweep in " + file.parent_path().string(), environment);
  const auto job = parse_job_name(jobs_of_task(sweep, *task).back());
  return job ? std::optional(JobName{job->number, task}) : std::nullopt;
}

std::string resolved(const std::string& path) {
  std::error_code error;
  const auto canonical = std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
  return error ? path : canonical.string();
}

OutputMatch match_file(const std::string& file, const Evidence& evidence) {
  auto outputs = outputs_of(evidence.job, evidence.accounts);
  for (auto& path : outputs.paths) path = resolved(path);
  return match_output(resolved(file), outputs);
}

/// What is known of tasks of arrays that were cancelled before they started, and that slurmctld has dropped.
std::vector<Evidence> cancelled_evidence(const std::map<int64_t, Evidence>& jobs) {
  std::vector<Job> known;
  for (const auto& [_, evidence] : jobs) {
    if (evidence.job) known.push_back(*evidence.job);
    if (!evidence.job && !evidence.accounts.empty()) known.push_back(evidence.accounts.back().job);
  }
  std::vector<Evidence> result;
  for (const auto& [_, evidence] : jobs) {
    if (!evidence.job || evidence.accounts.empty()) continue;
    auto account = evidence.accounts.back();
    const auto cancelled = cancelled_tasks(account.job, known);
    if (!cancelled) continue;
    account.job = *cancelled;
    result.push_back({.job = cancelled, .accounts = {account}});
  }
  return result;
}

/// The evidence for each job of a name: each task of an array is one.
std::vector<Evidence> find_evidence(const JobName& name, const Environment& environment) {
  std::map<int64_t, Evidence> jobs;
  std::map<int64_t, std::vector<Account>> others;
  std::optional<Error> failure;
  std::string why_no_accounts, why_no_job = "slurmctld does not know the job any more";
  try {
    for (auto& job : known_jobs(name, environment)) {
      const auto number = job.number;
      jobs[number].job = std::move(job);
    }
  } catch (const Error& error) {
    failure = error;
    why_no_job = error.what();
  }
  try {
    auto accounts = all_accounts_of(name, environment);
    for (auto& account : accounts.runs) jobs[account.job.number].accounts.push_back(std::move(account));
    for (auto& account : accounts.others) others[account.job.number].push_back(std::move(account));
    for (auto& [number, evidence] : jobs) {
      if (!evidence.job) continue;
      auto apart = tell_jobs_apart(std::move(evidence.accounts), *evidence.job);
      evidence.accounts = std::move(apart.runs);
      std::ranges::move(apart.others, std::back_inserter(others[number]));
    }
  } catch (const Error& error) {
    why_no_accounts = error.what();
    if (!failure && error.code() != ErrorCode::kFailedPrecondition) failure = error;
  }
  auto cancelled = cancelled_evidence(jobs);
  if (jobs.empty() && !name.task && !name.component) jobs[name.number];  // those have numbers of their own
  const auto* user = getpwuid(geteuid());
  const std::string reader = user == nullptr ? "" : user->pw_name;
  std::vector<Evidence> result;
  for (auto& [number, evidence] : jobs) {
    add_samples_of_run(evidence, number, others[number], environment);
    evidence.now = std::chrono::system_clock::now();
    evidence.reader = reader;
    evidence.why_no_job = why_no_job;
    if (evidence.accounts.empty()) {
      evidence.why_no_accounts =
          why_no_accounts.empty() ? "the accounts have nothing about the job yet" : why_no_accounts;
    }
    if (evidence.job || !evidence.accounts.empty() || !evidence.samples.empty()) result.push_back(std::move(evidence));
  }
  for (auto& evidence : cancelled) {
    evidence.now = std::chrono::system_clock::now();
    result.push_back(std::move(evidence));
  }
  std::ranges::stable_sort(result, {}, [](const Evidence& one) {  // Slurm numbers tasks as they start
    const std::string task = one.job                ? one.job->array_task
                             : one.accounts.empty() ? ""
                                                    : one.accounts.front().job.array_task;
    return parse_int(std::string_view(task).substr(0, task.find_first_not_of("0123456789")));
  });
  if (!result.empty()) return result;
  if (failure) throw *failure;
  throw Error(ErrorCode::kNotFound, "neither slurmctld nor the accounts nor the samples of this user know job {}{}",
              to_text(name), why_no_accounts.empty() ? "" : fmt::format(" ({})", printable(why_no_accounts)));
}

/// The evidence for the job that writes `file`. If Slurm does not tell which one that is, the report says so.
/// Errors  kNotFound: no job is known, or those that are known write other files.
std::vector<Evidence> evidence_of_file(const ReportTarget& target, const Environment& environment) {
  std::vector<Evidence> likely;
  std::optional<Error> failure;
  JobName other;
  for (const auto& name : target.names) {
    try {
      auto found = find_evidence(name, environment);
      std::vector<Evidence> sure, possible;
      for (auto& evidence : found) {
        const auto match = match_file(target.file, evidence);
        if (match == OutputMatch::kOther) continue;
        (match == OutputMatch::kIsOutput ? sure : possible).push_back(std::move(evidence));
      }
      if (!sure.empty()) return sure;
      if (possible.empty() && other.number == 0) other = name;
      if (!likely.empty()) continue;
      for (auto& evidence : possible) {
        evidence.doubts.push_back(
            fmt::format("whether {} is an output of job {} is not known: the number was taken from its name",
                        printable(target.file), to_text(name)));
      }
      likely = std::move(possible);
      // Samples alone: Slurm does not answer, or has forgotten the job, so further numbers would not become certain.
      if (!likely.empty() && !likely.front().job && likely.front().accounts.empty()) break;
    } catch (const Error& error) {
      if (!failure) failure = error;
      if (error.code() != ErrorCode::kNotFound) break;  // a Slurm that does not answer would keep each number waiting
    }
  }
  if (!likely.empty()) return likely;
  if (other.number != 0) {
    throw Error(ErrorCode::kNotFound,
                "{} is not an output of job {}, which writes another file; give the number of the job",
                printable(target.file), to_text(other));
  }
  throw *failure;
}

std::vector<Evidence> evidence_of_tasks(const JobRange& range, const Environment& environment) {
  auto evidence = find_evidence({range.number, std::nullopt}, environment);
  std::erase_if(evidence, [&](const Evidence& one) {
    const bool is_known = one.job || !one.accounts.empty();
    return !is_known || !range.contains(one.job ? *one.job : one.accounts.back().job);
  });
  if (!evidence.empty()) return evidence;
  throw Error(ErrorCode::kNotFound, "neither slurmctld nor the accounts know these tasks of job {}", range.number);
}

}  // namespace

std::vector<ReportTarget> report_targets(const std::string& word, const Environment& environment) {
  std::error_code ignored;
  std::vector<ReportTarget> result;
  const auto jobs = word.find('/') == word.npos ? parse_job_targets(word) : std::vector<JobTarget>();
  if (jobs.size() == 1 || !std::filesystem::exists(word, ignored)) {  // a file may be called 5-7
    for (const auto& job : jobs) result.push_back({{job.name}, job.range, "", job.is_of_interval});
  }
  if (!result.empty()) return result;
  if (const auto job = job_of_sweep(word, environment)) return {{{*job}, {}, ""}};
  if (auto names = jobs_in_name(word); !names.empty()) return {{std::move(names), {}, word}};
  throw Error(
      ErrorCode::kInvalidArgument,
      "'{}' names no job of Slurm; give a number, as 123, 123_4, '123_[1-4]' or 5-7, or an output file with the number "
      "in its name, as slurm-123.out, or of a task of `yoke slurm array`, as sweep/0/slurm.out",
      printable(word));
}

std::vector<Evidence> evidence_of(const ReportTarget& target, const Environment& environment) {
  if (!target.file.empty()) return evidence_of_file(target, environment);
  if (target.range) return evidence_of_tasks(*target.range, environment);
  const auto& name = target.names.front();
  try {
    return find_evidence(name, environment);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound || !name.task) throw;
    try {  // sacct has a task that was cancelled in the queue under the name of the array alone
      return evidence_of_tasks({name.number, {*name.task}}, environment);
    } catch (const Error& of_array) {
      if (of_array.code() != ErrorCode::kNotFound) throw;
    }
    throw;
  }
}

bool is_whole_array(const ReportTarget& target, const std::vector<TaskReport>& tasks) {
  const auto& name = target.names.front();
  if (!target.file.empty() || target.range || name.task) return false;
  const auto is_of_array = [&](const TaskReport& task) { return task.report.job.array == name.number; };
  return std::ranges::all_of(tasks, is_of_array) &&
         (tasks.size() > 1 || array_tasks_of(tasks[0].report.job).size() > 1);
}

}  // namespace yoke::slurm

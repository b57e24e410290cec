// `yoke slurm report`: say what jobs used of what they had, with advice.
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/slurm.h"
#include "yoke/slurm/array_report.h"
#include "yoke/slurm/holding.h"
#include "yoke/slurm/job/job_note.h"
#include "yoke/slurm/job_file.h"
#include "yoke/slurm/job_folder.h"
#include "yoke/slurm/query.h"
#include "yoke/slurm/report.h"
#include "yoke/slurm/sweep.h"

namespace yoke::cli {
namespace {

struct SlurmReportArgs {
  std::vector<std::string> jobs;
  bool json = false;
};

constexpr size_t kMaxSampleBytes = 1 << 20, kMaxSampleFiles = 100'000;

/// Reads the files that samplers of this user wrote. Files of other users are left out.
std::vector<slurm::NodeSample> read_samples(int64_t job, const Environment& environment) {
  std::vector<slurm::NodeSample> samples;
  const auto parent = slurm::samples_folder(environment);
  if (!parent) return samples;
  std::error_code error;
  for (std::filesystem::directory_iterator at(fmt::format("{}/{}", *parent, job), error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() != ".json" || samples.size() >= kMaxSampleFiles) continue;
    auto sample = slurm::parse_sample(slurm::read_own_file(at->path(), kMaxSampleBytes).value_or(""));
    if (sample && sample->job == job) samples.push_back(std::move(*sample));
  }
  return samples;
}

/// Adds the samples of the present or last run of this job alone. Its number may also have been that of `others`, or of
/// a job of another cluster with the same homes.
void add_samples(slurm::Evidence& evidence, int64_t number, const std::vector<slurm::Account>& others,
                 const Environment& environment) {
  auto samples = read_samples(number, environment);
  const auto* account = slurm::account_of_run(evidence);
  slurm::SampledRun run;
  run.submitted = evidence.job ? evidence.job->submitted : account ? account->job.submitted : std::nullopt;
  if (evidence.job) run.restart = evidence.job->num_restarts;
  const auto add = [&](const slurm::Account& other) {
    const auto& [started, ended] = std::pair(other.job.started, other.job.ended ? other.job.ended : run.submitted);
    if (started) run.others.emplace_back(*started, ended.value_or(*started));
  };
  std::ranges::for_each(others, add);
  for (const auto& earlier : evidence.accounts) {
    if (&earlier != account && !run.restart) add(earlier);  // samples have the number of their restart
  }
  if (std::ranges::any_of(samples, [](const auto& sample) { return !sample.cluster.empty(); })) {
    try {
      if (run.submitted) run.cluster = slurm::cluster_name(environment);
    } catch (const Error&) {  // slurmctld does not answer
    }
  }
  for (auto& doubt : keep_samples_of(run, samples)) evidence.doubts.push_back(std::move(doubt));
  evidence.samples = merged_by_host(std::move(samples));
}

/// The job to which FOLDER/slurm.out of `yoke slurm array` belongs: sweep.json lies beside FOLDER.
std::optional<slurm::JobName> job_of_sweep(const std::string& word, const Environment& environment) {
  const auto path = std::filesystem::absolute(word);
  const auto task = parse_int(path.parent_path().filename().string());
  const auto file = path.parent_path().parent_path() / "sweep.json";
  if (path.filename() != "slurm.out" || !task) return std::nullopt;
  const auto text = slurm::read_own_file(file, slurm::kMaxSweepBytes);
  if (!text) return std::nullopt;
  const auto sweep = slurm::parse_sweep(*text, file.string());
  slurm::require_cluster(sweep.cluster, "the sweep in " + file.parent_path().string(), environment);
  const auto job = slurm::parse_job_name(slurm::jobs_of_task(sweep, *task).back());
  return job ? std::optional(slurm::JobName{job->number, task}) : std::nullopt;
}

/// What a user names: a job or an array, tasks of one, or a file whose name may mean several jobs.
struct ReportTarget {
  std::vector<slurm::JobName> names;
  std::optional<slurm::JobRange> range;
  std::string file;             ///< Empty: the user gave the number.
  bool is_of_interval = false;  ///< As in slurm::JobTarget.
};

std::vector<ReportTarget> report_targets(const std::string& word, const Environment& environment) {
  std::error_code ignored;
  std::vector<ReportTarget> result;
  const auto jobs = word.find('/') == word.npos ? slurm::parse_job_targets(word) : std::vector<slurm::JobTarget>();
  if (jobs.size() == 1 || !std::filesystem::exists(word, ignored)) {  // a file may be called 5-7
    for (const auto& job : jobs) result.push_back({{job.name}, job.range, "", job.is_of_interval});
  }
  if (!result.empty()) return result;
  if (const auto job = job_of_sweep(word, environment)) return {{{*job}, {}, ""}};
  if (auto names = slurm::jobs_in_name(word); !names.empty()) return {{std::move(names), {}, word}};
  throw Error(
      ErrorCode::kInvalidArgument,
      "'{}' names no job of Slurm; give a number, as 123, 123_4, '123_[1-4]' or 5-7, or an output file with the number "
      "in its name, as slurm-123.out, or of a task of `yoke slurm array`, as sweep/0/slurm.out",
      printable(word));
}

std::string resolved(const std::string& path) {
  std::error_code error;
  const auto canonical = std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
  return error ? path : canonical.string();
}

slurm::OutputMatch match_file(const std::string& file, const slurm::Evidence& evidence) {
  auto outputs = slurm::outputs_of(evidence.job, evidence.accounts);
  for (auto& path : outputs.paths) path = resolved(path);
  return match_output(resolved(file), outputs);
}

/// What is known of tasks of arrays that were cancelled before they started, and that slurmctld has dropped.
std::vector<slurm::Evidence> cancelled_evidence(const std::map<int64_t, slurm::Evidence>& jobs) {
  std::vector<slurm::Job> known;
  for (const auto& [_, evidence] : jobs) {
    if (evidence.job) known.push_back(*evidence.job);
    if (!evidence.job && !evidence.accounts.empty()) known.push_back(evidence.accounts.back().job);
  }
  std::vector<slurm::Evidence> result;
  for (const auto& [_, evidence] : jobs) {
    if (!evidence.job || evidence.accounts.empty()) continue;
    auto account = evidence.accounts.back();
    const auto cancelled = slurm::cancelled_tasks(account.job, known);
    if (!cancelled) continue;
    account.job = *cancelled;
    result.push_back({.job = cancelled, .accounts = {account}});
  }
  return result;
}

/// The evidence for each job of a name: each task of an array is one.
std::vector<slurm::Evidence> find_evidence(const slurm::JobName& name, const Environment& environment) {
  std::map<int64_t, slurm::Evidence> jobs;
  std::map<int64_t, std::vector<slurm::Account>> others;
  std::optional<Error> failure;
  std::string why_no_accounts, why_no_job = "slurmctld does not know the job any more";
  try {
    for (auto& job : slurm::known_jobs(name, environment)) {
      const auto number = job.number;
      jobs[number].job = std::move(job);
    }
  } catch (const Error& error) {
    failure = error;
    why_no_job = error.what();
  }
  try {
    auto accounts = slurm::all_accounts_of(name, environment);
    for (auto& account : accounts.runs) jobs[account.job.number].accounts.push_back(std::move(account));
    for (auto& account : accounts.others) others[account.job.number].push_back(std::move(account));
    for (auto& [number, evidence] : jobs) {
      if (!evidence.job) continue;
      auto apart = slurm::tell_jobs_apart(std::move(evidence.accounts), *evidence.job);
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
  std::vector<slurm::Evidence> result;
  for (auto& [number, evidence] : jobs) {
    add_samples(evidence, number, others[number], environment);
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
  std::ranges::stable_sort(result, {}, [](const slurm::Evidence& one) {  // Slurm numbers tasks as they start
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
std::vector<slurm::Evidence> evidence_of_file(const ReportTarget& target, const Environment& environment) {
  std::vector<slurm::Evidence> likely;
  std::optional<Error> failure;
  slurm::JobName other;
  for (const auto& name : target.names) {
    try {
      auto found = find_evidence(name, environment);
      std::vector<slurm::Evidence> sure, possible;
      for (auto& evidence : found) {
        const auto match = match_file(target.file, evidence);
        if (match == slurm::OutputMatch::kOther) continue;
        (match == slurm::OutputMatch::kIsOutput ? sure : possible).push_back(std::move(evidence));
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

std::vector<slurm::Evidence> evidence_of_tasks(const slurm::JobRange& range, const Environment& environment) {
  auto evidence = find_evidence({range.number, std::nullopt}, environment);
  std::erase_if(evidence, [&](const slurm::Evidence& one) {
    const bool is_known = one.job || !one.accounts.empty();
    return !is_known || !range.contains(one.job ? *one.job : one.accounts.back().job);
  });
  if (!evidence.empty()) return evidence;
  throw Error(ErrorCode::kNotFound, "neither slurmctld nor the accounts know these tasks of job {}", range.number);
}

std::vector<slurm::Evidence> evidence_of(const ReportTarget& target, const Environment& environment) {
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

/// Whether the user named an array by its number alone, and it has several tasks.
bool is_whole_array(const ReportTarget& target, const std::vector<slurm::TaskReport>& tasks) {
  const auto& name = target.names.front();
  if (!target.file.empty() || target.range || name.task) return false;
  const auto is_of_array = [&](const slurm::TaskReport& task) { return task.report.job.array == name.number; };
  return std::ranges::all_of(tasks, is_of_array) &&
         (tasks.size() > 1 || array_tasks_of(tasks[0].report.job).size() > 1);
}

int run_slurm_report(const SlurmReportArgs& args, Context& context) {
  std::vector<ReportTarget> targets;
  for (const auto& word : args.jobs) {
    std::ranges::move(report_targets(word, context.environment), std::back_inserter(targets));
  }
  std::optional<Error> unknown;  // one job of several does not keep the others from their reports
  auto reports = nlohmann::ordered_json::array(), arrays = reports;
  std::set<std::string> told;  // by 5-7, of which 5 may be an array and 6 one of its tasks
  bool is_first = true;
  const auto print = [&](const std::string& text) {
    context.out << (is_first ? "" : "\n") << text;
    is_first = false;
  };
  for (const auto& target : targets) {
    std::vector<slurm::TaskReport> tasks;
    std::vector<slurm::Evidence> found;
    try {
      found = evidence_of(target, context.environment);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotFound || targets.size() == 1) throw;
      std::cerr << speaker(context) << printable(error.what()) << '\n';
      unknown = error;
      continue;
    }
    for (const auto& evidence : found) {
      auto report = make_report(evidence);
      if (target.is_of_interval && !told.insert(report.job.id).second) continue;
      auto advice = advise(report);
      tasks.push_back({std::move(report), std::move(advice)});
    }
    if (tasks.empty()) continue;
    const bool is_array = is_whole_array(target, tasks);
    if (is_array && args.json) arrays.push_back(to_json(make_array_report(tasks)));
    if (is_array && !args.json) print(to_text(make_array_report(tasks), table_width(context)));
    for (const auto& [report, advice] : tasks) {
      if (args.json) reports.push_back(to_json(report, advice));
      if (!args.json && !is_array) print(to_text(report, advice, table_width(context)));
    }
  }
  if (args.json) {
    constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
    context.out << nlohmann::ordered_json{{"reports", reports}, {"arrays", arrays}}.dump(2, ' ', false, kReplace)
                << '\n';
  }
  return unknown ? exit_status(unknown->code()) : kExitOk;
}

}  // namespace

void add_slurm_report(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<SlurmReportArgs>();  // CLI11 keeps references to *args; the callback owns it
  cmd.add_option("JOB", args->jobs, "Numbers of jobs, or their output files, as slurm-123.out")
      ->type_name("JOB|FILE")
      ->expected(1, -1)
      ->required();
  cmd.add_flag("--json", args->json, "Print JSON");
  cmd.footer(
      examples("  yoke slurm report 4121             a job that runs or has ended\n"
               "  yoke slurm report 4121_7 4130      a task of an array, and another job\n"
               "  yoke slurm report 4131             all tasks of an array: states, and the spread of what they used\n"
               "  yoke slurm report '4131_[1-3]'     these tasks of it, one by one\n"
               "  yoke slurm report 4121-4125        several jobs; so are 4121,4125\n"
               "  yoke slurm report logs/*.out       the jobs of these output files\n"
               "  yoke slurm report sweep/*/slurm.out    the tasks of a sweep of `yoke slurm array`\n"
               "  yoke slurm report --json 4121 | jq '.reports[].advice[].text'\n"
               "\n"
               "Figures come from the samples that `yoke run` and `yoke slurm sample` take in a job, or else\n"
               "from sacct. What neither knows is said.\n"
               "\n"
               "Exit status: 0; 66 if nobody knows a job, or if a file is not an output of the job in its name;\n"
               "75 if slurmctld or munge cannot be reached and there are no samples either."));
  cmd.callback([args, &context] { context.exit_code = run_slurm_report(*args, context); });
}

}  // namespace yoke::cli

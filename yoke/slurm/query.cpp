#include "yoke/slurm/query.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "yoke/base/text.h"
#include "yoke/slurm/programs.h"

namespace yoke::slurm {
namespace {

/// Whether slurmctld answered that it has no such job. Of a task that an array lacks, scontrol prints
/// "Job 120_9 not found".
bool is_unknown_job(const CommandOutput& output) {
  const auto text = output.err + output.out;
  return !output.timed_out && (text.find("Invalid job id specified") != text.npos ||
                               (text.starts_with("Job ") && text.find(" not found") != text.npos));
}

/// The number of a job's task in its array; tasks that wait together have that of the first one.
int64_t task_number(const Job& job) {
  const std::string_view text = job.array_task;
  return parse_int(text.substr(0, text.find_first_not_of("0123456789"))).value_or(-1);
}

/// Like ask(), but returns an empty text if there is no such job.
std::string ask_about_job(const std::vector<std::string>& argv, const Environment& environment) {
  const auto output = run_quietly(argv, query_environment(environment), kAnswerTime);
  if (output.status == 0 && !output.timed_out) return output.out;
  if (is_unknown_job(output)) return "";
  throw failure_of(argv[0], output, kAnswerTime);
}

}  // namespace

Environment query_environment(Environment environment) {
  for (const auto& variable : environment.to_strings()) {
    const auto name = variable.substr(0, variable.find('='));
    if (name.starts_with("SQUEUE_") || name.starts_with("SACCT_") || name.starts_with("SCONTROL_") ||
        name.starts_with("SCANCEL_")) {
      environment.erase(name);
    }
  }
  environment.set("SLURM_TIME_FORMAT", "%s");
  environment.set("SLURM_BITSTR_LEN", "0");  // lists of tasks are cut after 64 characters otherwise
  return environment;
}

std::vector<Job> queued_jobs(const QueueOptions& options, const Environment& environment) {
  std::vector<std::string> argv = {"squeue", "--noheader", "-O", kSqueueColumns};
  if (!options.user.empty()) argv.push_back("--user=" + options.user);
  if (!options.jobs.empty()) argv.push_back(fmt::format("--jobs={}", fmt::join(options.jobs, ",")));
  return parse_squeue(ask_about_job(argv, environment));
}

std::vector<Job> known_jobs(const JobName& name, const Environment& environment) {
  auto jobs = parse_scontrol(ask_about_job({"scontrol", "show", "job", to_text(name)}, environment));
  // `scontrol show job 120` shows the whole array if 120 is one; a task of it may have the number 120 itself.
  if (!name.task) {
    const bool is_array =
        std::ranges::any_of(jobs, [&](const Job& job) { return job.array && *job.array == name.number; });
    if (!is_array) std::erase_if(jobs, [&](const Job& job) { return job.number != name.number; });
  }
  std::ranges::stable_sort(jobs, {}, task_number);  // scontrol begins with the last task
  return jobs;
}

std::vector<Account> accounts_of(const JobName& name, const Environment& environment) {
  return parse_sacct(
      ask({"sacct", "--noheader", "--parsable2", "--duplicates", "-j", to_text(name), "-o", kSacctColumns},
          query_environment(environment)));
}

}  // namespace yoke::slurm

#include "yoke/slurm/job/query.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "yoke/slurm/words/programs.h"

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

std::vector<Job> queued_jobs(const QueueOptions& options, const Environment& environment) {
  std::vector<std::string> argv = {"squeue", "--noheader", "-O", kSqueueColumns};
  if (!options.user.empty()) argv.push_back("--user=" + options.user);
  if (!options.jobs.empty()) argv.push_back(fmt::format("--jobs={}", fmt::join(options.jobs, ",")));
  return parse_squeue(ask_about_job(argv, environment));
}

std::vector<Job> known_jobs(const JobName& name, const Environment& environment) {
  auto jobs = parse_scontrol(ask_about_job({"scontrol", "show", "job", to_text(name)}, environment));
  // `scontrol show job 120` shows the whole array if 120 is one; a task of it may have the number 120 itself.
  const bool is_array =
      std::ranges::any_of(jobs, [&](const Job& job) { return job.array && *job.array == name.number; });
  std::erase_if(jobs, [&](const Job& job) {
    const auto own = parse_job_name(job.id);
    if (name.component) return own != name;
    const bool is_component = own && own->component && own->number == name.number;
    return !name.task && !is_array && !is_component && job.number != name.number;
  });
  // scontrol begins with the last task
  std::ranges::stable_sort(jobs, {}, [](const Job& job) { return std::pair(task_number(job), job.number); });
  return jobs;
}

std::optional<int64_t> max_array_size(const Environment& environment) {
  const auto text = ask({"scontrol", "show", "config"}, environment);
  return parse_int(setting_of(text, "MaxArraySize"));
}

std::vector<Account> accounts_of(const JobName& name, const Environment& environment) {
  return all_accounts_of(name, environment).runs;
}

JobAccounts all_accounts_of(const JobName& name, const Environment& environment) {
  const auto asked =
      name.component ? std::to_string(name.number) : to_text(name);  // sacct knows no names of components
  auto accounts = parse_sacct(
      ask({"sacct", "--noheader", "--parsable2", "--duplicates", "-j", asked, "-o", kSacctColumns}, environment));
  if (name.component) {
    std::erase_if(accounts, [&](const Account& account) { return account.job.id != to_text(name); });
  }
  return tell_jobs_apart(std::move(accounts));
}

}  // namespace yoke::slurm

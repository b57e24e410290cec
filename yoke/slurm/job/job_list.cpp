#include "yoke/slurm/job/job_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/base/moment.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/device/process/info.h"
#include "yoke/slurm/job/job_file.h"
#include "yoke/slurm/job/query.h"

namespace yoke::slurm {
namespace {

std::string where_text(const Job& job) {
  return job.is_waiting() ? "(" + (job.reason.empty() ? "no reason yet" : job.reason) + ")" : job.node_list;
}

/// When a waiting job is expected to start, or how long a job runs already.
std::string job_time_text(const Job& job) {
  if (!job.is_waiting()) return format_duration(job.elapsed);
  return job.started ? "starts " + moment_text(*job.started).substr(0, 16) : "-";
}

Table job_table(const std::vector<Job>& jobs, bool with_user) {
  // Of a narrow terminal, the job, its state and where it is or why it waits are the last to go.
  Table table{.columns = {{"job"},
                          {"name", Align::kLeft, 8, 7},
                          {"partition", Align::kLeft, 6, 3},
                          {"state"},
                          {"nodes", Align::kRight, 0, 5},
                          {"GPUs", Align::kRight, 0, 4},
                          {"time", Align::kLeft, 0, 6},
                          {"limit", Align::kRight, 0, 1},
                          {"restarts", Align::kRight, 0, 2},
                          {"where", Align::kLeft, 12}}};
  for (const auto& job : jobs) {
    table.rows.push_back({short_id(job), job.name, job.partition, job.state, std::to_string(job.num_nodes),
                          job.num_gpus == 0 ? "-" : std::to_string(job.num_gpus), job_time_text(job),
                          job.limit ? format_duration(*job.limit) : "-",
                          job.num_restarts == 0 ? "-" : std::to_string(job.num_restarts), where_text(job)});
    if (with_user) table.rows.back().insert(table.rows.back().begin() + 1, job.user);
  }
  if (with_user) table.columns.insert(table.columns.begin() + 1, {"user", Align::kLeft, 6, 8});
  return table;
}

/// What each reason in the table means, once.
std::string reasons_text(const std::vector<Job>& jobs) {
  std::vector<std::string> told;
  std::string text;
  for (const auto& job : jobs) {
    const auto reason = job.reason.substr(0, job.reason.find(','));
    if (!job.is_waiting() || reason.empty() || std::ranges::find(told, reason) != told.end()) continue;
    told.push_back(reason);
    const auto words = explain_reason(job.reason);
    if (words.meaning.empty()) continue;
    text += fmt::format("{}{}: {}{}{}\n", text.empty() ? "\n" : "", printable(reason), words.meaning,
                        words.next.empty() ? "" : "; ", words.next);
  }
  return text;
}

std::string missing_text(const std::vector<std::string>& missing) {
  return fmt::format("job{} {} neither wait{} nor run{}; `yoke slurm report` shows jobs that have ended\n",
                     missing.size() == 1 ? "" : "s", fmt::join(missing, ", "), missing.size() == 1 ? "s" : "",
                     missing.size() == 1 ? "s" : "");
}

/// Whether `job` is the one that a user named, or a task or a component of it, or tasks that wait together and have it.
bool is_named(const Job& job, const JobTarget& target) {
  const auto& name = target.name;
  if (target.range) return target.contains(job);
  if (name.task) {
    const bool is_cut = job.array == name.number && array_tasks_of(job).empty();
    return is_cut || JobRange{name.number, {*name.task}}.contains(job);
  }
  const auto own = parse_job_name(job.id);
  if (name.component) return own == name;
  return job.number == name.number || job.array == name.number || (own && own->number == name.number);
}

}  // namespace

JobList list_jobs(const std::vector<std::string>& words, bool is_all, const Environment& environment) {
  JobList list{.user = is_all || !words.empty() ? "" : device::user_name(geteuid()), .is_named = !words.empty()};
  std::vector<JobTarget> names;
  QueueOptions asked{.user = list.user};
  for (const auto& word : words) {
    for (auto& target : require_job_targets(word)) {
      asked.jobs.push_back(to_text(target.name));
      names.push_back(std::move(target));
    }
  }
  list.jobs = queued_jobs(asked, environment);
  const auto is_wanted = [&](const Job& job) {
    return names.empty() || std::ranges::any_of(names, [&](const auto& name) { return is_named(job, name); });
  };
  std::erase_if(list.jobs, [&](const Job& job) { return !is_wanted(job); });  // squeue shows all components
  for (const auto& name : names) {
    const auto is_this = [&](const auto& job) { return is_named(job, name); };
    if (std::ranges::none_of(list.jobs, is_this)) list.missing.push_back(to_text(name));
  }
  return list;
}

nlohmann::ordered_json to_json(const JobList& list) {
  Json json = {{"jobs", json_list(list.jobs, [](const Job& job) { return to_json(job); })}};
  if (list.is_named) json["missing"] = list.missing;
  return json;
}

std::string to_text(const JobList& list, int64_t width) {
  if (list.jobs.empty() && list.is_named) return missing_text(list.missing);
  if (list.jobs.empty()) {
    return list.user.empty() ? "no job waits or runs on this cluster\n"
                             : fmt::format("no job of {} waits or runs on this cluster\n", printable(list.user));
  }
  return to_text(job_table(list.jobs, list.user.empty()), width) + reasons_text(list.jobs) +
         (list.missing.empty() ? "" : "\n" + missing_text(list.missing));
}

}  // namespace yoke::slurm

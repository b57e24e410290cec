#include "yoke/slurm/job/sweep_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "yoke/base/json.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"

namespace yoke::slurm {
namespace {

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
  Table table{.columns = {{"task", Align::kRight}, {"state"}}, .rows = {}};
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

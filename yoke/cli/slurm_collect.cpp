// `yoke slurm array --collect`: the results of a sweep.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "yoke/base/json.h"
#include "yoke/base/shell.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/slurm_sweep.h"
#include "yoke/curve/recording.h"

namespace yoke::cli {
namespace {

using Metrics = std::vector<std::pair<std::string, double>>;

/// The last value of each metric that the task wrote.
Metrics last_metrics(const std::filesystem::path& folder) {
  Metrics metrics;
  const auto take = [&](const std::filesystem::path& run) {
    for (const auto& curve : curve::read_run(run).curves) {
      if (!curve.values.empty()) metrics.emplace_back(curve.metric, curve.values.back());
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
  return metrics;
}

Json collected_json(const SweepFolder& folder, const SweepStates& states, const std::vector<Metrics>& metrics) {
  Json json = {{"folder", folder.path.string()}, {"tasks", Json::array()}};
  for (size_t i = 0; i < states.tasks.size(); ++i) {
    auto parameters = Json::object(), values = Json::object();
    for (const auto& [name, value] : folder.sweep.tasks[i].parameters) parameters[name] = value;
    for (const auto& [name, value] : metrics[i]) values[name] = std::isfinite(value) ? Json(value) : Json();
    const auto job = slurm::jobs_of_task(folder.sweep, static_cast<int64_t>(i)).back();
    json["tasks"].push_back({{"task", i},
                             {"job", job.empty() ? Json() : Json(fmt::format("{}_{}", job, i))},
                             {"state", states.tasks[i].text},
                             {"parameters", parameters},
                             {"metrics", values}});
  }
  return json;
}

Table collected_table(const SweepFolder& folder, const SweepStates& states, const std::vector<Metrics>& metrics,
                      const std::string& missing) {
  std::vector<std::string> names;
  for (const auto& one : metrics) {
    for (const auto& [name, _] : one) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  const bool is_exact = missing.empty();  // for programs
  const auto& tasks = folder.sweep.tasks;
  Table table{.columns = {{"task", Align::kRight}, {"state"}}, .rows = {}};
  for (const auto& [name, _] : tasks.empty() ? decltype(slurm::SweepTask::parameters)() : tasks[0].parameters) {
    table.columns.push_back({name, Align::kRight});
  }
  for (const auto& name : names) table.columns.push_back({name, Align::kRight});
  for (size_t i = 0; i < tasks.size(); ++i) {
    std::vector<std::string> row = {std::to_string(i), states.tasks[i].text};
    for (const auto& [_, value] : tasks[i].parameters) row.push_back(value);
    for (const auto& name : names) {
      const auto found = std::ranges::find(metrics[i], name, &Metrics::value_type::first);
      row.push_back(found == metrics[i].end() ? missing
                    : is_exact                ? fmt::format("{}", found->second)
                                              : fmt::format("{:.6g}", found->second));
    }
    row.resize(table.columns.size());
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// Says on standard error what a script or a user should know about the tasks. Returns the exit status.
int tell_ends(const SweepFolder& folder, const SweepStates& states) {
  using slurm::SweepEnd;
  const auto count = [&](SweepEnd end) { return std::ranges::count(states.tasks, end, &slurm::SweepState::end); };
  bool has_failed = false;
  for (size_t i = 0; i < states.tasks.size(); ++i) {
    if (!states.tasks[i].has_failed()) continue;
    has_failed = true;
    const bool has_output = states.tasks[i].end != SweepEnd::kNeverStarted;
    const auto job = slurm::jobs_of_task(folder.sweep, static_cast<int64_t>(i)).back();
    std::cerr << fmt::format(
        "yoke slurm array: task {} {}{}{}\n", i, states.tasks[i].text,
        job.empty() ? "" : fmt::format(" as job {}_{}", printable(job), i),
        has_output ? "; its output is " + printable((folder.of_task(i) / "slurm.out").string()) : "");
  }
  if (has_failed) {
    std::cerr << fmt::format("yoke slurm array: `yoke slurm array --rerun {}` runs them again\n",
                             shell_word(printable(folder.path.string())));
  }
  const auto num_unended = count(SweepEnd::kNotEnded), num_unknown = count(SweepEnd::kNotKnown);
  if (num_unended > 0) {
    std::cerr << fmt::format("yoke slurm array: {} of {} tasks {} not ended\n", num_unended, states.tasks.size(),
                             num_unended == 1 ? "has" : "have");
  }
  // Tasks that had failed may wait again, but a Slurm that is not here has nothing to say about them.
  const auto code = states.unanswered ? states.unanswered->code() : ErrorCode::kNotFound;
  const bool may_answer = code == ErrorCode::kTimeout || code == ErrorCode::kUnavailable;
  const bool is_open = num_unknown > 0 || (has_failed && may_answer);
  if (is_open) {
    std::cerr << fmt::format(
        "yoke slurm array: it is not known whether all tasks have ended: {}\n",
        states.unanswered ? printable(states.unanswered->what()) : "Slurm does not know them any more");
  }
  // A loop may wait for tasks and for an answer, but what Slurm has forgotten it does not learn again.
  if (num_unended > 0 || (is_open && may_answer)) return exit_status(ErrorCode::kUnavailable);
  if (is_open) return exit_status(code);
  return has_failed ? 1 : kExitOk;
}

}  // namespace

int collect_sweep(const CollectOptions& options, Context& context) {
  const auto folder = open_sweep(options.sweep, context.environment);
  const auto states = sweep_states(folder, context.environment);
  std::vector<Metrics> metrics;
  for (size_t i = 0; i < folder.sweep.tasks.size(); ++i) metrics.push_back(last_metrics(folder.of_task(i)));
  if (options.json) {
    print_json(collected_json(folder, states, metrics), context);
  } else {
    const auto table = collected_table(folder, states, metrics, options.csv ? "" : "-");
    context.out << (options.csv ? to_csv(table) : to_text(table, table_width(context)));
  }
  return tell_ends(folder, states);
}

}  // namespace yoke::cli

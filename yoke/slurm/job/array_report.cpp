#include "yoke/slurm/job/array_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/base/table.h"

namespace yoke::slurm {
namespace {

/// A figure of one task, and its limit.
struct TaskFigure {
  double value = 0;
  int64_t task = 0;
  std::optional<double> limit;
  bool is_ended_by_limit = false;
};

std::optional<Spread> spread_of(std::vector<TaskFigure> figures) {
  if (figures.empty()) return std::nullopt;
  std::ranges::stable_sort(figures, {}, &TaskFigure::value);
  const auto at = [&](double share) {  // the nearest rank
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(figures.size())));
    return figures[std::max<size_t>(rank, 1) - 1].value;
  };
  std::vector<int64_t> ended;
  for (const auto& figure : figures) {
    if (figure.is_ended_by_limit) ended.push_back(figure.task);
  }
  std::ranges::sort(ended);
  const auto& most = figures.back();
  return Spread{.num_tasks = figures.size(),
                .least = figures.front().value,
                .median = at(0.5),
                .most = most.value,
                .ninety = at(0.9),
                .most_task = most.task,
                .limit = most.limit,
                .ended_by_limit = std::move(ended)};
}

/// Collects what `figure` knows of each task that has run and ended.
template <typename Figure>
std::optional<Spread> spread_over(const std::vector<TaskReport>& tasks, const Figure& figure) {
  std::vector<TaskFigure> figures;
  for (const auto& [report, _] : tasks) {
    const auto indices = array_tasks_of(report.job);
    if (indices.size() != 1 || !report.job.has_ended() || !report.job.has_run()) continue;
    if (auto one = figure(report)) {
      one->task = indices[0];
      figures.push_back(*one);
    }
  }
  return spread_of(std::move(figures));
}

template <typename Value>
std::optional<TaskFigure> known_figure(const std::optional<Value>& value, const std::optional<int64_t>& limit = {}) {
  if (!value) return std::nullopt;
  return TaskFigure{.value = static_cast<double>(*value),
                    .limit = limit ? std::optional(static_cast<double>(*limit)) : std::nullopt};
}

/// "0-5,8", cut at a comma if it is long.
std::string short_task_list(const std::vector<int64_t>& tasks) {
  constexpr size_t kMost = 40;
  const auto list = to_task_list(tasks);
  const auto comma = list.rfind(',', kMost);
  return list.size() <= kMost || comma == list.npos ? list : list.substr(0, comma) + ",...";
}

std::string task_words(const std::vector<int64_t>& tasks) {
  return fmt::format("task{} {}", tasks.size() == 1 ? "" : "s", short_task_list(tasks));
}

Json spread_json(const std::optional<Spread>& spread) {
  if (!spread) return nullptr;
  return {{"num_tasks", spread->num_tasks},
          {"least", spread->least},
          {"median", spread->median},
          {"ninety", spread->ninety},
          {"most", spread->most},
          {"most_task", spread->most_task},
          {"limit", spread->limit ? Json(*spread->limit) : Json()},
          {"ended_by_limit", spread->ended_by_limit}};
}

}  // namespace

ArrayReport make_array_report(const std::vector<TaskReport>& tasks) {
  const auto& first = tasks.at(0).report.job;
  ArrayReport report{.number = first.array.value_or(first.number),
                     .name = first.name,
                     .user = first.user,
                     .partition = first.partition};
  for (const auto& [one, advice] : tasks) {
    const auto indices = array_tasks_of(one.job);
    report.num_tasks += static_cast<int64_t>(indices.size());
    if (one.is_out_of_memory) report.out_of_memory.insert(report.out_of_memory.end(), indices.begin(), indices.end());
    auto state = std::ranges::find(report.states, one.job.state, &decltype(report.states)::value_type::first);
    if (state == report.states.end()) state = report.states.insert(state, {one.job.state, {}});
    state->second.insert(state->second.end(), indices.begin(), indices.end());
    for (const auto& sentence : advice) {
      const auto is_same = [&](const ArrayReport::SharedAdvice& other) { return other.first.kind == sentence.kind; };
      auto shared = std::ranges::find_if(report.advice, is_same);
      if (shared == report.advice.end()) shared = report.advice.insert(shared, {sentence, {}});
      shared->tasks.insert(shared->tasks.end(), indices.begin(), indices.end());
    }
  }
  for (auto& [_, indices] : report.states) std::ranges::sort(indices);
  for (auto& [_, indices] : report.advice) std::ranges::sort(indices);
  std::ranges::sort(report.out_of_memory);
  std::ranges::stable_sort(report.states, std::greater(), [](const auto& state) { return state.second.size(); });
  report.seconds = spread_over(tasks, [](const UseReport& one) {
    auto figure = known_figure(std::optional(one.job.elapsed.count()),
                               one.job.limit ? std::optional(one.job.limit->count()) : std::nullopt);
    figure->is_ended_by_limit = one.job.state == "TIMEOUT";
    return figure;
  });
  report.queue_seconds = spread_over(tasks, [](const UseReport& one) {
    return known_figure(one.queue_wait ? std::optional(one.queue_wait->count()) : std::nullopt);
  });
  report.cpu_percent = spread_over(tasks, [](const UseReport& one) { return known_figure(one.cpu_percent); });
  report.gpu_percent = spread_over(tasks, [](const UseReport& one) { return known_figure(one.gpu_percent); });
  report.memory_bytes = spread_over(tasks, [](const UseReport& one) {
    return one.is_out_of_memory ? std::nullopt : known_figure(one.memory_peak_bytes, one.memory_limit_bytes);
  });
  return report;
}

nlohmann::ordered_json to_json(const ArrayReport& report) {
  Json json = {{"array", report.number},
               {"name", report.name},
               {"user", report.user},
               {"num_tasks", report.num_tasks},
               {"states", Json::object()},
               {"elapsed_seconds", spread_json(report.seconds)},
               {"queue_wait_seconds", spread_json(report.queue_seconds)},
               {"cpu_percent", spread_json(report.cpu_percent)},
               {"memory_peak_bytes", spread_json(report.memory_bytes)},
               {"gpu_percent", spread_json(report.gpu_percent)},
               {"out_of_memory", report.out_of_memory},
               {"advice", Json::array()}};
  for (const auto& [state, tasks] : report.states) json["states"][state] = tasks;
  for (const auto& [first, tasks] : report.advice) {
    json["advice"].push_back(
        {{"kind", first.kind}, {"is_serious", first.is_serious}, {"tasks", tasks}, {"first_text", first.text}});
  }
  return json;
}

std::string to_text(const ArrayReport& report, int64_t width) {
  std::string text = fmt::format("array {} ({}) of {}: {} tasks, partition {}\n", report.number, printable(report.name),
                                 printable(report.user), report.num_tasks, printable(report.partition));
  Table states{.columns = {{"state"}, {"tasks", Align::kRight}, {"which", Align::kLeft, 12}}};
  for (const auto& [state, tasks] : report.states) {
    states.rows.push_back({state, std::to_string(tasks.size()), short_task_list(tasks)});
  }
  text += "\n" + to_text(states, width);
  Table use{.columns = {{"of those that ended"},
                        {"known", Align::kRight, 0, 1},
                        {"least", Align::kRight, 0, 2},
                        {"median", Align::kRight, 0, 4},
                        {"90 %", Align::kRight, 0, 3},
                        {"most", Align::kRight},
                        {"of", Align::kRight},
                        {"task", Align::kRight}}};
  const auto add = [&](const char* name, const std::optional<Spread>& spread, const auto& format) {
    if (!spread) return;
    const auto& ended = spread->ended_by_limit;
    const bool is_least = std::ranges::binary_search(ended, spread->most_task);
    use.rows.push_back({name, std::to_string(spread->num_tasks), format(spread->least), format(spread->median),
                        format(spread->ninety), (is_least ? "over " : "") + format(spread->most),
                        spread->limit ? format(*spread->limit) : "-", std::to_string(spread->most_task)});
  };
  const auto percent = [](double value) { return fmt::format("{:.0f} %", value); };
  const auto duration = [](double value) { return format_duration(Seconds(static_cast<int64_t>(value))); };
  add("time", report.seconds, duration);
  add("queue", report.queue_seconds, duration);
  add("CPUs", report.cpu_percent, percent);
  add("memory", report.memory_bytes, [](double value) { return format_bytes(static_cast<int64_t>(value)); });
  add("GPUs", report.gpu_percent, percent);
  if (!use.rows.empty()) text += "\n" + to_text(use, width);
  const auto say = [&](const std::vector<int64_t>& ended, std::string_view sentence) {
    if (!ended.empty()) text += fmt::format("\n{}: {}\n", task_words(ended), sentence);
  };
  if (report.seconds) say(report.seconds->ended_by_limit, "the time limit ended what needs longer than the table says");
  say(report.out_of_memory, "the memory did not suffice; how much would is not known, so the row of memory is without");
  if (!report.advice.empty()) text += "\nadvice\n";
  for (const auto& [first, tasks] : report.advice) {
    text += fmt::format("  {} {}: {}\n", first.is_serious ? "!" : "-", task_words(tasks), first.text);
  }
  const auto& example = report.states.at(0).second;
  if (!example.empty()) {
    text += fmt::format("\n`yoke slurm report {}_{}` has more about one task\n", report.number, example.front());
  }
  return text;
}

}  // namespace yoke::slurm

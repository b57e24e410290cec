// Report of the exercise `loader`: how much a data loader slows down a training.
#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/format.h"
#include "yoke/bench/detail/figures.h"

namespace yoke::bench {
namespace {

/// A loader that adds less than this share of a step to the step's time is hidden behind the computation.
constexpr double kHiddenPercent = 3;

std::string workers_of(const Json& row) {
  const auto count = row.at("num_workers").get<int64_t>();
  return count == 0 ? "no worker" : counted(count, "worker");
}

std::string percent(double value) { return fmt::format("{:.{}f} %", value, value < 9.95 ? 1 : 0); }

/// Returns the row with the fewest workers that gives nearly the most samples per second.
const Json& knee_of(const Rows& rows) {
  const double most = number(row_with_most(rows, "samples_per_second"), "samples_per_second");
  return *std::ranges::find_if(rows,
                               [&](const Json& row) { return number(row, "samples_per_second") >= kNearly * most; });
}

/// Returns a warning if the loader's cost differs much between the rounds, otherwise an empty text.
std::string doubt_about(const Json& row) {
  constexpr double kFarApart = 20;
  const double low = number(row, "loader_cost_p10_percent"), high = number(row, "loader_cost_p90_percent");
  if (high - low < kFarApart) return "";
  return fmt::format(
      " The rounds disagree (with {} from {:.0f} to {:.0f} %): the machine has other work, or the time is too short.",
      workers_of(row), low, high);
}

/// The row whose rounds disagree so much that no verdict holds; null if there is none.
const Json* unusable(const Rows& rows) {
  constexpr double kMostSpread = 60;
  const auto spread = [](const Json& row) {
    return number(row, "loader_cost_p90_percent") - number(row, "loader_cost_p10_percent");
  };
  const auto worst = std::ranges::max_element(rows, {}, spread);
  return spread(*worst) > kMostSpread ? &*worst : nullptr;
}

std::string verdict(const Json& measured, const Rows& rows) {
  if (const auto* const row = unusable(rows)) {
    return fmt::format(
        "No verdict: the rounds disagree (with {}, the loader costs from {:.0f} to {:.0f} % of a step). The machine "
        "has other work, or the time is too short; --time gives more.",
        workers_of(*row), number(*row, "loader_cost_p10_percent"), number(*row, "loader_cost_p90_percent"));
  }
  const auto cost = [](const Json& row) { return number(row, "loader_cost_percent"); };
  const auto hidden = std::ranges::find_if(rows, [&](const Json& row) { return cost(row) < kHiddenPercent; });
  const auto& worst = *std::ranges::max_element(rows, {}, cost);
  const auto& best = *std::ranges::min_element(rows, {}, cost);
  if (hidden == rows.begin()) {
    return fmt::format("The loader keeps up: with {} it costs {} of a step.", workers_of(*hidden),
                       percent(std::max(0.0, cost(*hidden)))) +
           doubt_about(*hidden);
  }
  if (hidden != rows.end()) {
    const auto& before = *std::prev(hidden);
    return fmt::format("With {} the loader costs {} of a step; {} hide it ({}).", workers_of(before),
                       percent(cost(before)), workers_of(*hidden), percent(std::max(0.0, cost(*hidden)))) +
           doubt_about(*hidden);
  }
  const double needed = number(measured, "batch_size") * 1e3 / number(measured, "cached_step_ms");
  auto sentence = fmt::format("The loader holds the training back: with {} it costs {} of a step", workers_of(best),
                              percent(cost(best)));
  if (rows.size() > 1 && worst != best)
    sentence += fmt::format(", and with {} {}", workers_of(worst), percent(cost(worst)));
  const auto rate = number(best, "samples_per_second");
  if (best.at("num_workers") == 0 && rows.size() > 1) {
    sentence += ". Workers cost as much as they hide: they share processors and memory with the training.";
  } else if (best.at("num_workers") == 0) {
    sentence += ". Without a worker, a step waits until its batch is made; --workers 1 or more load while it computes.";
  } else if (rate < needed) {
    sentence +=
        fmt::format(". It gives {} samples/s, and the steps could take {}.", format_rate(rate), format_rate(needed));
  } else {
    sentence += fmt::format(
        ". Alone it gives {} samples/s, more than the {} that the steps could take, so the two compete for processors "
        "and memory.",
        format_rate(rate), format_rate(needed));
  }
  return sentence + doubt_about(best);
}

}  // namespace

Report report_loader(const Json& measured) {
  Report report;
  report.table.columns = timed_columns({{"workers", Align::kRight}, {"samples/s", Align::kRight}, {""}}, {"step"},
                                       {{"loader costs", Align::kRight},
                                        {"batch ready", Align::kRight},
                                        {"CPU load", Align::kRight, 0, 3},
                                        {"memory", Align::kRight, 0, 4}});
  const Rows rows(measured.at("results").begin(), measured.at("results").end());
  const auto& knee = knee_of(rows);
  for (const auto& row : rows) {
    report.table.rows.push_back(
        timed_cells({fmt::format("{:.0f}", number(row, "num_workers")), format_rate(number(row, "samples_per_second")),
                     row == knee ? "knee" : ""},
                    row, {"step"},
                    {percent(number(row, "loader_cost_percent")), percent(number(row, "ready_percent")),
                     percent(number(row, "cpu_load_percent")), format_bytes(row.value("memory_bytes", int64_t{0}))}));
  }
  report.table.rows.push_back(timed_cells({"cached", "", ""}, measured, {"cached_step"},
                                          {"", "", percent(number(measured, "cached_cpu_load_percent")), ""}));
  report.sentence = verdict(measured, rows);
  if (rows.size() > 1) {
    report.sentence += fmt::format(" Alone, the loader gives {} samples/s with {}",
                                   format_rate(number(knee, "samples_per_second")), workers_of(knee));
    const auto& best = row_with_most(rows, "samples_per_second");
    report.sentence += best == knee ? ", and more workers gain nothing."
                                    : fmt::format(", and at most {} with more workers.",
                                                  format_rate(number(best, "samples_per_second")));
  }
  auto fed = line_of("fed by the loader", rows, "num_workers", "step_ms");
  auto replayed = fed;
  replayed.name = "cached batches";
  for (auto& point : replayed.points) point.y = number(measured, "cached_step_ms");
  report.chart = {
      .panels = {{.title = fmt::format("samples/s of the loader alone, knee at {:.0f}", number(knee, "num_workers")),
                  .x_title = "workers",
                  .lines = {line_of("loader", rows, "num_workers", "samples_per_second")}},
                 {.title = "milliseconds a step", .x_title = "workers", .lines = {fed, replayed}}}};
  return report;
}

}  // namespace yoke::bench

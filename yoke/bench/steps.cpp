// Reports of the exercises about training steps: batch and precision.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "yoke/base/format.h"
#include "yoke/bench/detail/figures.h"

namespace yoke::bench {
namespace {

std::string batch_of(const Json& row) { return fmt::format("{:.0f}", number(row, "batch_size")); }

std::string batch_sentence(const Series& series) {
  const auto& rows = series.rows;
  const auto &best = row_with_most(rows, "samples_per_second"), &first = rows.front(), &last = rows.back();
  auto sentence = fmt::format("{} trains the most samples per second, {}, with batches of {}", series.names[0],
                              format_rate(number(best, "samples_per_second")), batch_of(best));
  const auto& near = first_near_most(rows, "samples_per_second");
  if (near != best) sentence += fmt::format(", and from {} on at least 90 % of that", batch_of(near));
  sentence += ".";
  if (rows.size() == 1) return sentence;
  sentence += fmt::format(" A step takes {} with {} and {} with {}", duration(number(first, "step_ms")),
                          batch_of(first), duration(number(last, "step_ms")), batch_of(last));
  const double samples = number(last, "batch_size") / number(first, "batch_size");
  const double time = number(last, "step_ms") / number(first, "step_ms");
  return sentence + fmt::format(": {} the samples in {} the time.", times(samples), times(time));
}

/// The rows of one model in which mixed precision is faster, slower, or equally fast.
struct ModelOutcome {
  std::string model;
  Rows wins, losses, draws;
};

std::string sizes_of(const Rows& rows) {
  std::vector<std::string> sizes;
  for (const auto& row : rows) sizes.push_back(batch_of(row));
  return fmt::format("{} {}", sizes.size() == 1 ? "batch size" : "batch sizes", fmt::join(sizes, ", "));
}

std::string gains_of(const ModelOutcome& one) {
  const auto& best = row_with_most(one.wins, "speedup");
  return fmt::format("{} at {} (up to {} as fast)", one.model, sizes_of(one.wins), times(number(best, "speedup")));
}

std::string losses_of(const ModelOutcome& one) {
  double worst = 1;
  for (const auto& row : one.losses) worst = std::min(worst, number(row, "speedup"));
  return fmt::format("{} at {} (up to {} as long)", one.model, sizes_of(one.losses), times(1 / worst));
}

std::string precision_sentence(const std::vector<ModelOutcome>& outcomes) {
  std::vector<std::string> wins, losses, draws;
  for (const auto& one : outcomes) {
    if (!one.wins.empty()) wins.push_back(gains_of(one));
    if (!one.losses.empty()) losses.push_back(losses_of(one));
    if (!one.draws.empty()) draws.push_back(fmt::format("{} at {}", one.model, sizes_of(one.draws)));
  }
  std::string sentence = wins.empty() ? "Mixed precision is faster nowhere"
                                      : fmt::format("Mixed precision is faster for {}", fmt::join(wins, ", and for "));
  sentence +=
      losses.empty() ? ", and loses nowhere" : fmt::format("; it loses for {}", fmt::join(losses, ", and for "));
  if (!draws.empty()) sentence += fmt::format("; it makes no difference for {}", fmt::join(draws, ", and for "));
  return sentence + ".";
}

}  // namespace

Report report_batch(const Json& measured) {
  Report report;
  report.table.columns =
      timed_columns({{"model"}, {"batch size", Align::kRight}}, {"step"}, {{"samples/s", Align::kRight}});
  view::ChartPanel rates{.title = "samples/s", .x_title = "batch size", .x_is_log = true};
  view::ChartPanel steps{.title = "milliseconds a step", .x_title = "batch size", .x_is_log = true};
  for (const auto& series : series_of(measured.at("results"), {"model"})) {
    for (const auto& row : series.rows) {
      report.table.rows.push_back(timed_cells({series.names[0], batch_of(row)}, row, {"step"},
                                              {format_rate(number(row, "samples_per_second"))}));
    }
    rates.lines.push_back(line_of(series.names[0], series.rows, "batch_size", "samples_per_second"));
    steps.lines.push_back(line_of(series.names[0], series.rows, "batch_size", "step_ms"));
    report.sentence += (report.sentence.empty() ? "" : " ") + batch_sentence(series);
  }
  report.chart = {.has_log_y = true, .panels = {std::move(rates), std::move(steps)}};
  return report;
}

Report report_precision(const Json& measured) {
  Report report;
  report.table.columns = timed_columns({{"model"}, {"batch size", Align::kRight}}, {"float32", "mixed"},
                                       {{"times as fast", Align::kRight}});
  view::ChartPanel panel{.title = "times as fast with mixed precision", .x_title = "batch size", .x_is_log = true};
  std::vector<ModelOutcome> outcomes;
  for (const auto& series : series_of(measured.at("results"), {"model"})) {
    ModelOutcome model{.model = series.names[0]};
    for (const auto& row : series.rows) {
      const double speedup = number(row, "speedup");
      const auto outcome = outcome_of(row);
      (outcome == Outcome::kFaster   ? model.wins
       : outcome == Outcome::kSlower ? model.losses
                                     : model.draws)
          .push_back(row);
      report.table.rows.push_back(timed_cells({series.names[0], batch_of(row)}, row, {"float32_step", "mixed_step"},
                                              {shown(speedup) + (outcome == Outcome::kSlower ? " loses" : "")}));
    }
    panel.lines.push_back(line_of(series.names[0], series.rows, "batch_size", "speedup"));
    outcomes.push_back(std::move(model));
  }
  report.sentence = precision_sentence(outcomes);
  report.chart = {.panels = {std::move(panel)}};
  return report;
}

}  // namespace yoke::bench

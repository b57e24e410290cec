#include "yoke/profile/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/json.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"

namespace yoke::profile {
namespace {

std::string headline(const Report& report) {
  const auto confidence = name(report.confidence);
  if (report.bottleneck) {
    return fmt::format("{} limits this training: a fix saves at most {:.0f} % of the step (confidence: {}).",
                       rule_of(report.bottleneck->cause).title, report.bottleneck->ceiling_percent, confidence);
  }
  double unexplained = 0;
  for (const auto& rank : report.ranks) unexplained = std::max(unexplained, rank.unexplained_percent);
  if (unexplained >= kMostlyUnexplainedPercent) {
    return fmt::format(
        "No bottleneck found (confidence: {}), but {:.0f} % of the step is in code that the trace does not name, and "
        "the bottleneck may be there.",
        confidence, unexplained);
  }
  if (report.findings.empty()) return fmt::format("No bottleneck found (confidence: {}).", confidence);
  const auto& most = report.findings[0];
  const auto& rule = rule_of(most.cause);
  return fmt::format(
      "No bottleneck found (confidence: {}). {} takes most, {:.0f} % of the step; it is named from {:.0f} % on, if two "
      "steps have that.",
      confidence, rule.title, most.ceiling_percent, rule.threshold_percent);
}

std::string cell(double percent) { return fmt::format("{:.1f} %", percent); }

Table findings_table(const Report& report) {
  Table table{.columns = {{"cause"},
                          {"ms/step", Align::kRight},
                          {"at most", Align::kRight},
                          {"named from", Align::kRight},
                          {"steps above", Align::kRight}}};
  for (const auto& finding : report.findings) {
    table.rows.push_back({std::string(rule_of(finding.cause).name), fmt::format("{:.2f}", finding.ms_per_step),
                          cell(finding.ceiling_percent),
                          fmt::format("{:.0f} %", rule_of(finding.cause).threshold_percent),
                          fmt::format("{} of {}", finding.num_steps, finding.num_steps_seen)});
  }
  return table;
}

Table ranks_table(const Report& report) {
  Table table{.columns = {{"rank", Align::kRight},
                          {"trace", Align::kLeft, 12},
                          {"steps", Align::kRight, 0, 1},
                          {"ms/step", Align::kRight},
                          {"computes", Align::kRight},
                          {"loads", Align::kRight},
                          {"collectives", Align::kRight},
                          {"waits", Align::kRight},
                          {"unexplained", Align::kRight}}};
  for (const auto& rank : report.ranks) {
    table.rows.push_back({fmt::format("{}", rank.rank), std::string(base_name(rank.path)),
                          fmt::format("{}", rank.num_steps), fmt::format("{:.2f}", rank.step_ms),
                          cell(rank.computing_percent), cell(rank.loading_percent), cell(rank.communicating_percent),
                          cell(rank.waiting_percent), cell(rank.unexplained_percent)});
  }
  return table;
}

/// Rounds to two decimals, because a trace is not more precise.
double rounded(double value) { return std::round(value * 100) / 100; }

/// Times to a microsecond, for comparisons.
double precise(double ms) { return std::round(ms * 1000) / 1000; }

Json json_of(const MeanTime& time) {
  return {{"ms", precise(time.ms)}, {"error_ms", time.error_ms ? Json(precise(*time.error_ms)) : Json()}};
}

Json step_json_of(const RankLine& rank) {
  auto json = json_of(rank.step);
  if (rank.spread) {
    json["median_ms"] = precise(rank.spread->median_ms);
    json["long"] = rank.spread->num_long;
    json["parts"] = rank.spread->num_parts;
  }
  return json;
}

}  // namespace

std::string to_text(const Report& report, int64_t width) {
  std::string text = headline(report) + "\n\n";
  for (const auto& sentence : report.evidence) text += "  " + printable(sentence) + '\n';
  if (!report.evidence.empty()) text += '\n';
  if (!report.findings.empty()) text += to_text(findings_table(report), width) + '\n';
  text += to_text(ranks_table(report), width);
  if (!report.notes.empty()) text += '\n';
  for (const auto& note : report.notes) text += "  " + printable(note) + '\n';
  if (report.bottleneck) text += fmt::format("\nNext: {}\n", rule_of(report.bottleneck->cause).advice);
  return text;
}

nlohmann::ordered_json to_json(const Report& report) {
  Json ranks = Json::array(), causes = Json::array();
  for (const auto& rank : report.ranks) {
    Json phases = Json::object();
    for (size_t i = 0; i < kNumPhases; ++i) phases[kPhaseNames[i].name] = json_of(rank.phases[i]);
    ranks.push_back({{"rank", rank.rank},
                     {"trace", printable(rank.path)},
                     {"steps", rank.num_steps},
                     {"device", rank.has_device},
                     {"step_ms", rounded(rank.step_ms)},
                     {"computing_percent", rounded(rank.computing_percent)},
                     {"data_loading_percent", rounded(rank.loading_percent)},
                     {"communication_percent", rounded(rank.communicating_percent)},
                     {"waiting_percent", rounded(rank.waiting_percent)},
                     {"unexplained_percent", rounded(rank.unexplained_percent)},
                     {"step", step_json_of(rank)},
                     {"phases", std::move(phases)}});
  }
  for (const auto& finding : report.findings) {
    causes.push_back({{"cause", rule_of(finding.cause).name},
                      {"gain_ceiling_percent", rounded(finding.ceiling_percent)},
                      {"threshold_percent", rule_of(finding.cause).threshold_percent},
                      {"ms_per_step", rounded(finding.ms_per_step)},
                      {"steps_above", finding.num_steps},
                      {"steps", finding.num_steps_seen}});
  }
  const auto& named = report.bottleneck;
  Json json = {{"bottleneck", named ? rule_of(named->cause).name : "none"},
               {"confidence", name(report.confidence)},
               {"gain_ceiling_percent", named ? rounded(named->ceiling_percent) : 0.0},
               {"evidence", json_list(report.evidence, printable)},
               {"ranks", std::move(ranks)},
               {"advice", named ? rule_of(named->cause).advice : ""},
               {"causes", std::move(causes)},
               {"notes", json_list(report.notes, printable)},
               {"world_size", or_null(report.world_size)},
               {"operations", json_list(report.operations, [](const OperationTime& operation) {
                  return Json{{"name", printable(operation.name)}, {"ms_per_step", precise(operation.ms_per_step)}};
                })}};
  if (report.straggler) {
    json["straggler"] = {{"rank", report.straggler->rank},
                         {"late_percent", rounded(report.straggler->late_percent)},
                         {"why", report.straggler->why}};
  }
  return json;
}

}  // namespace yoke::profile

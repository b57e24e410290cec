#include "yoke/view/usage.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/base/table.h"

namespace yoke::view {
namespace {

using device::UsageReport;

std::string percent(const std::optional<double>& value) { return value ? fmt::format("{:.0f} %", *value) : "?"; }

std::string bytes_of(const std::optional<int64_t>& value) { return value ? format_bytes(*value) : "?"; }

std::string watts(const std::optional<int64_t>& mw) {
  return mw ? fmt::format("{:.0f} W", static_cast<double>(*mw) / 1e3) : "?";
}

std::string energy(const std::optional<int64_t>& mj) {
  if (!mj) return "?";
  const double joules = static_cast<double>(*mj) / 1e3;
  return joules < 1e4 ? fmt::format("{:.0f} J", joules) : fmt::format("{:.1f} Wh", joules / 3600);
}

double hundredths(double value) { return std::round(value * 100) / 100; }
Json known(const std::optional<double>& value) { return value ? Json(hundredths(*value)) : Json(nullptr); }

Table table_of(const UsageReport& report) {
  Table table{{{"device", Align::kRight},
               {"mean", Align::kRight},
               {"p5", Align::kRight},
               {"p50", Align::kRight},
               {"p95", Align::kRight},
               {fmt::format("under {:.4g} %", report.goal_percent), Align::kRight},
               {"memory peak", Align::kRight},
               {"power", Align::kRight},
               {"peak", Align::kRight},
               {"energy", Align::kRight}},
              {}};
  for (const auto& usage : report.devices) {
    table.rows.push_back({usage.id, percent(usage.mean_percent), percent(usage.p5_percent), percent(usage.p50_percent),
                          percent(usage.p95_percent), percent(usage.under_goal_percent),
                          bytes_of(usage.memory_peak_bytes), watts(usage.mean_power_mw), watts(usage.peak_power_mw),
                          energy(usage.energy_mj)});
  }
  return table;
}

}  // namespace

std::optional<double> mean_of(std::span<const device::UsageBin> bins, std::optional<double> device::UsageBin::*value) {
  double total = 0;
  int64_t count = 0;
  for (const auto& bin : bins) {
    if (!(bin.*value)) continue;
    total += *(bin.*value);
    ++count;
  }
  return count > 0 ? std::optional(total / static_cast<double>(count)) : std::nullopt;
}

std::string sparkline(const std::vector<device::UsageBin>& timeline, int64_t width) {
  static constexpr std::array kHeights = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const auto num_bins = static_cast<int64_t>(timeline.size());
  const auto columns = std::min(width, num_bins);
  std::string line;
  for (int64_t column = 0; column < columns; ++column) {
    const auto first = static_cast<size_t>(column * num_bins / columns);
    const auto last = static_cast<size_t>((column + 1) * num_bins / columns);
    const auto mean = mean_of({timeline.data() + first, last - first}, &device::UsageBin::utilization_percent);
    line += mean ? kHeights[static_cast<size_t>(std::clamp(*mean / 12.5, 0.0, 7.0))] : " ";
  }
  return line;
}

std::vector<std::string> remarks(const UsageReport& report) {
  std::vector<std::string> sentences;
  for (const auto& usage : report.devices) {
    const auto where = fmt::format("device {}: ", usage.id);
    const auto idle_before = usage.first_used, idle_after = report.duration - usage.last_used;
    if (usage.was_used && usage.mean_while_used_percent && (idle_before + idle_after) > 0.05 * report.duration) {
      sentences.push_back(where + fmt::format("the program was on it from {} to {}; mean in this time {:.0f} %",
                                              format_duration(usage.first_used), format_duration(usage.last_used),
                                              *usage.mean_while_used_percent));
    }
    for (const auto& [reason, share] : usage.throttled_percent) {
      sentences.push_back(where + fmt::format("its clocks were held down for {:.0f} % of the time: {}", share, reason));
    }
    if (usage.mean_percent && usage.unknown > 0.01 * report.duration) {
      sentences.push_back(where + fmt::format("nothing is known of {} of the time", format_duration(usage.unknown)));
    }
    if (!usage.mean_percent && report.duration.count() >= 1) {
      sentences.push_back(where + "the driver does not tell its utilisation");
    }
  }
  if (report.duration.count() < 2) {
    sentences.push_back("a run this short says little: drivers tell means of up to a second");
  }
  return sentences;
}

std::string usage_text(const UsageReport& report, const UsageNotes& notes, int64_t width) {
  auto result = fit(printable(fmt::format("{}: {}, {} samples", notes.program, format_duration(report.duration),
                                          report.num_samples)),
                    width) +
                '\n';
  if (!report.devices.empty()) result += to_text(table_of(report), width);
  for (const auto& usage : report.devices) {
    if (usage.timeline.empty()) continue;
    const auto title = fmt::format("{:>6}  ", usage.id);
    result += title + sparkline(usage.timeline, width - static_cast<int64_t>(title.size())) + '\n';
  }
  for (const auto& sentence : notes.sentences) result += printable(sentence) + '\n';
  return result;
}

Json usage_json(const UsageReport& report, const UsageNotes& notes) {
  Json json;
  json["program"] = or_null(notes.program);
  json["duration_seconds"] = hundredths(report.duration.count());
  json["num_samples"] = report.num_samples;
  json["goal_percent"] = report.goal_percent;
  json["devices"] = Json::array();
  for (const auto& usage : report.devices) {
    Json throttled = Json::object();
    for (const auto& [reason, share] : usage.throttled_percent) throttled[reason] = hundredths(share);
    json["devices"].push_back(
        {{"id", usage.id},
         {"uuid", or_null(usage.uuid)},
         {"name", or_null(usage.name)},
         {"was_used", usage.was_used},
         {"mean_utilization_percent", known(usage.mean_percent)},
         {"p5_utilization_percent", known(usage.p5_percent)},
         {"p50_utilization_percent", known(usage.p50_percent)},
         {"p95_utilization_percent", known(usage.p95_percent)},
         {"under_goal_percent", known(usage.under_goal_percent)},
         {"unknown_seconds", hundredths(usage.unknown.count())},
         {"first_used_seconds", usage.was_used ? Json(hundredths(usage.first_used.count())) : Json(nullptr)},
         {"last_used_seconds", usage.was_used ? Json(hundredths(usage.last_used.count())) : Json(nullptr)},
         {"mean_utilization_while_used_percent", known(usage.mean_while_used_percent)},
         {"memory_total_bytes", or_null(usage.memory_total_bytes)},
         {"memory_peak_bytes", or_null(usage.memory_peak_bytes)},
         {"program_memory_peak_bytes", or_null(usage.program_memory_peak_bytes)},
         {"mean_power_mw", or_null(usage.mean_power_mw)},
         {"peak_power_mw", or_null(usage.peak_power_mw)},
         {"energy_mj", or_null(usage.energy_mj)},
         {"is_energy_counted", usage.is_energy_counted},
         {"throttled_percent", throttled},
         {"timeline_bin_seconds", hundredths(usage.bin.count())},
         {"timeline_utilization_percent",
          json_list(usage.timeline, [](const auto& bin) { return known(bin.utilization_percent); })}});
  }
  json["notes"] = json_list(notes.sentences, [](const std::string& sentence) { return or_null(sentence); });
  return json;
}

}  // namespace yoke::view

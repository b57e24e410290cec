// Reports of the exercises about data transfers: copies and all-reduce.
#include <fmt/format.h>

#include "yoke/base/format.h"
#include "yoke/bench/detail/figures.h"

namespace yoke::bench {
namespace {

std::string bytes_of(const Json& row) { return format_bytes(row.at("bytes").get<int64_t>()); }

/// "host to cuda:0"
std::string route_of(const Series& series) { return fmt::format("{} to {}", series.names[0], series.names[1]); }

std::string rates_of(const Series& series) {
  const auto &best = row_with_most(series.rows, "gb_per_second"), &last = series.rows.back();
  const auto& first = series.rows.front();
  auto sentence = fmt::format("Copies from {} ({} memory) reach {} GB/s at {}", route_of(series), series.names[2],
                              shown(number(best, "gb_per_second")), bytes_of(best));
  const auto has_less = [&](const Json& row) {
    return row != best && number(row, "gb_per_second") < (1 - kNoticed) * number(best, "gb_per_second");
  };
  if (has_less(last)) sentence += fmt::format(", {} at {}", shown(number(last, "gb_per_second")), bytes_of(last));
  if (first != last && has_less(first)) {
    sentence += fmt::format(" and {} at {}, which takes {}", shown(number(first, "gb_per_second")), bytes_of(first),
                            duration(number(first, "time_ms")));
  }
  return sentence + ".";
}

/// Returns a sentence about the speedup by pinned memory on a route, at the largest size.
std::string gain_of_pinning(const Series& pinned, const Series& pageable) {
  const double ratio = number(pageable.rows.back(), "time_ms") / number(pinned.rows.back(), "time_ms");
  const auto begin = fmt::format(" From {}, {} of pinned memory", route_of(pinned), bytes_of(pinned.rows.back()));
  if (ratio > 1 + kNoticed) return fmt::format("{} are copied {} as fast as of pageable memory.", begin, times(ratio));
  if (ratio >= 1 - kNoticed) return fmt::format("{} are copied as fast as of pageable memory.", begin);
  return fmt::format("{} take {} as long as of pageable memory.", begin, times(1 / ratio));
}

}  // namespace

Report report_copies(const Json& measured) {
  Report report;
  report.table.columns =
      timed_columns({{"from"}, {"to"}, {"memory"}, {"size", Align::kRight}}, {"time"}, {{"GB/s", Align::kRight}});
  view::ChartPanel panel{.title = "GB/s", .x_title = "bytes", .x_is_log = true};
  const auto all = series_of(measured.at("results"), {"from", "to", "memory"});
  for (const auto& series : all) {
    for (const auto& row : series.rows) {
      report.table.rows.push_back(timed_cells({series.names[0], series.names[1], series.names[2], bytes_of(row)}, row,
                                              {"time"}, {shown(number(row, "gb_per_second"))}));
    }
    panel.lines.push_back(line_of(route_of(series) + ", " + series.names[2], series.rows, "bytes", "gb_per_second"));
    for (const auto& other : all) {
      if (series.names[2] != "pinned" || other.names[2] != "pageable" || route_of(series) != route_of(other)) continue;
      report.sentence += gain_of_pinning(series, other);
    }
  }
  report.sentence = rates_of(all.front()) + report.sentence;
  report.chart = {.has_log_y = true, .panels = {std::move(panel)}};
  return report;
}

Report report_all_reduce(const Json& measured) {
  Report report;
  report.table.columns = timed_columns({{"size", Align::kRight}}, {"time"},
                                       {{"algorithm GB/s", Align::kRight}, {"bus GB/s", Align::kRight}});
  const Rows rows(measured.at("results").begin(), measured.at("results").end());
  for (const auto& row : rows) {
    report.table.rows.push_back(
        timed_cells({bytes_of(row)}, row, {"time"},
                    {shown(number(row, "algorithm_gb_per_second")), shown(number(row, "bus_gb_per_second"))}));
  }
  const auto &best = row_with_most(rows, "bus_gb_per_second"), &first = rows.front();
  report.sentence = fmt::format("{:.0f} ranks reach a bus bandwidth of {} GB/s at {}; {} take {}.",
                                number(measured, "num_ranks"), shown(number(best, "bus_gb_per_second")), bytes_of(best),
                                bytes_of(first), duration(number(first, "time_ms")));
  const auto is_bound_by_bytes = [&](const Json& row) { return number(row, "time_ms") > 2 * number(first, "time_ms"); };
  const auto from = lasting_from(rows, is_bound_by_bytes);
  if (rows.size() > 1 && !from) {
    report.sentence += fmt::format(" Even {} take less than twice as long, so latency decides at all these sizes.",
                                   bytes_of(rows.back()));
  } else if (from && *from > 1) {
    report.sentence += fmt::format(
        " Up to {} the time is less than twice that, so latency decides; fewer and larger all-reduces are faster.",
        bytes_of(rows[*from - 1]));
  }
  report.chart = {.has_log_y = true,
                  .panels = {{.title = "GB/s",
                              .x_title = "bytes",
                              .x_is_log = true,
                              .lines = {line_of("algorithm bandwidth", rows, "bytes", "algorithm_gb_per_second"),
                                        line_of("bus bandwidth", rows, "bytes", "bus_gb_per_second")}}}};
  return report;
}

}  // namespace yoke::bench

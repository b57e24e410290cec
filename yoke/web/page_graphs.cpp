#include "yoke/web/page_graphs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace yoke::web {
namespace {

/// What is known of a metric in an interval, as heights of the graph: 0 is at the top, 100 at the bottom.
struct Column {
  int64_t x = 0;  ///< From 0 on; the last is capacity - 1.
  int64_t top = 0, mean = 0, bottom = 0;
};
using Run = std::vector<Column>;  ///< Neighbours.

int64_t height(double percent) { return 100 - std::lround(std::clamp(percent, 0.0, 100.0)); }

/// The columns of the last `num_columns` intervals.
std::vector<Run> runs_of(const Series& series, Metric metric, Series::Time now, int64_t num_columns) {
  std::vector<Run> runs;
  const auto first = series.number_of(now) - num_columns + 1;
  for (const auto& [number, buckets] : series.buckets()) {
    const auto& bucket = buckets[static_cast<size_t>(metric)];
    const auto x = number - first;
    if (bucket.count == 0 || x < 0 || x >= num_columns) continue;
    if (runs.empty() || runs.back().back().x != x - 1) runs.emplace_back();
    runs.back().push_back({x, height(bucket.max), height(bucket.mean()), height(bucket.min)});
  }
  return runs;
}

using Edge = int64_t Column::*;

/// A path of steps along an edge. Equal steps are one.
std::string steps(const Run& run, Edge edge) {
  auto path = fmt::format("M{} {}", run.front().x, run.front().*edge);
  for (size_t i = 0; i < run.size(); ++i) {
    if (i + 1 < run.size() && run[i + 1].*edge == run[i].*edge) continue;
    path += fmt::format("H{}", run[i].x + 1);
    if (i + 1 < run.size()) path += fmt::format("V{}", run[i + 1].*edge);
  }
  return path;
}

std::string line(const Run& run) { return steps(run, &Column::mean); }

/// The area below the line.
std::string area(const Run& run) { return fmt::format("{}V100H{}z", line(run), run.front().x); }

/// The area between the most and the least.
std::string band(const Run& run) {
  auto path = steps(run, &Column::top);
  for (auto column = run.rbegin(); column != run.rend(); ++column) {
    path += fmt::format("V{}H{}", column->bottom, column->x);
  }
  return path + "z";
}

std::string path(const char* style, const std::vector<Run>& runs, const std::function<std::string(const Run&)>& draw) {
  if (runs.empty()) return "";
  std::string data;
  for (const auto& run : runs) data += draw(run);
  return fmt::format("<path class=\"{}\" d=\"{}\"/>", style, data);
}

/// "use 71% on average, at most 93%", also for those who do not see the graph.
std::string summary(const Series& series, Metric metric, const char* name) {
  Bucket all;
  for (const auto& [number, buckets] : series.buckets()) {
    const auto& bucket = buckets[static_cast<size_t>(metric)];
    if (bucket.count == 0) continue;
    all.max = std::max(all.max, bucket.max);
    all.sum += bucket.mean();
    ++all.count;
  }
  if (all.count == 0) return fmt::format("{} is not known", name);
  return fmt::format("{} {:.0f}% on average, at most {:.0f}%", name, all.mean(), all.max);
}

std::string begin_graph(const Series& series, int64_t num_columns, std::string_view period) {
  return fmt::format(
      "<svg class=\"graph\" viewBox=\"0 0 {} 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}: {}; "
      "{}\">",
      num_columns, period, summary(series, Metric::kUse, "use"), summary(series, Metric::kMemory, "memory"));
}

}  // namespace

std::string recent_graph(const Series& series, Series::Time now) {
  const auto width = series.capacity();
  return begin_graph(series, width, "the last 15 minutes") +
         path("use", runs_of(series, Metric::kUse, now, width), area) +
         path("line", runs_of(series, Metric::kMemory, now, width), line) + "</svg>\n";
}

std::chrono::hours shown_period(std::optional<Series::Time> begin, Series::Time now) {
  for (const int64_t hours : {1, 2, 4, 8, 12}) {
    if (begin && now - *begin <= std::chrono::hours(hours)) return std::chrono::hours(hours);
  }
  return std::chrono::hours(24);
}

std::string period_text(std::chrono::hours period) {
  return period.count() == 1 ? "the last hour" : fmt::format("the last {} hours", period.count());
}

std::string day_graph(const Series& series, Series::Time now, std::chrono::hours period, const std::string& label) {
  const auto width = std::min<int64_t>(series.capacity(), period / series.bucket_length());
  const auto use = runs_of(series, Metric::kUse, now, width);
  auto html = fmt::format("<figure><figcaption><span>{}</span><span class=\"muted\">{}</span></figcaption>", label,
                          summary(series, Metric::kUse, "use"));
  html += begin_graph(series, width, period_text(period));
  for (const int64_t quarter : {1, 2, 3}) {
    html += fmt::format("<path class=\"tick\" d=\"M{} 0V100\"/>", width * quarter / 4);
  }
  html += path("band", use, band) + path("mean", use, line) +
          path("line", runs_of(series, Metric::kMemory, now, width), line);
  const bool is_in_hours = period.count() >= 4;
  const auto quarter = is_in_hours ? period.count() / 4 : period.count() * 15;
  return html +
         fmt::format(
             "</svg><div class=\"axis\" aria-hidden=\"true\"><span>{} {} ago</span><span>{}</span><span>{}</span>"
             "<span>{}</span><span>now</span></div></figure>\n",
             4 * quarter, is_in_hours ? "h" : "min", 3 * quarter, 2 * quarter, quarter);
}

}  // namespace yoke::web

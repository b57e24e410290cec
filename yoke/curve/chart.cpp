#include "yoke/curve/chart.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/base/spelling.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"

namespace yoke::curve {
namespace {

constexpr size_t kMaxChosen = 4;  ///< The number of metrics to draw if the user names none.

std::string short_list(std::vector<std::string> names) {
  constexpr size_t kMaxShown = 12;
  const auto num_more = names.size() - std::min(names.size(), kMaxShown);
  names.resize(names.size() - num_more);
  const auto text = printable(fmt::format("{}", fmt::join(names, ", ")));
  return num_more == 0 ? text : fmt::format("{} and {} more", text, num_more);
}

/// Returns the metrics to draw: those that the user named, or by default the first kMaxChosen (JSON and CSV: all).
std::vector<std::string> chosen_metrics(const ChartRequest& request, const std::vector<Recording>& recordings,
                                        std::vector<std::string>& notes) {
  const auto all = metrics_of(recordings);
  if (request.metrics.empty() && request.all) return all;
  if (!request.metrics.empty()) {
    for (const auto& metric : request.metrics) {
      std::vector<std::string> without;
      for (const auto& recording : recordings) {
        if (find_curve(recording, metric) == nullptr) without.push_back(recording.run);
      }
      if (without.size() == recordings.size()) {
        throw Error(
            ErrorCode::kNotFound, "{} no metric '{}'{}; there {}",
            without.size() == 1 ? printable(without[0]) + " has" : "these runs have", printable(metric),
            did_you_mean(metric, all),
            all.empty() ? "is none yet" : fmt::format("{} {}", all.size() == 1 ? "is" : "are", short_list(all)));
      }
      if (!without.empty())
        notes.push_back(fmt::format("no metric '{}' in {}", printable(metric), short_list(without)));
    }
    return request.metrics;
  }
  std::vector<std::string> chosen;
  std::ranges::copy_if(all, std::back_inserter(chosen), [](const std::string& metric) {
    return metric != "seconds" && metric != "samples_per_second" && !metric.starts_with("epoch/");
  });
  if (chosen.empty()) chosen = all;
  if (chosen.size() > kMaxChosen) {
    const std::vector<std::string> others(chosen.begin() + kMaxChosen, chosen.end());
    chosen.resize(kMaxChosen);
    notes.push_back(fmt::format("not drawn, choose with --metric: {}", short_list(others)));
  }
  return chosen;
}

const std::vector<double>& places(const Curve& curve, std::string_view x) {
  return x == kEpoch ? curve.epochs : x == kTime ? curve.times : curve.steps;
}

/// Returns the x axis: the one that the user chose, or the first of step, epoch and time that all curves have.
std::string chosen_x(const ChartRequest& request, const std::vector<Recording>& recordings, const std::string& metric) {
  std::string missing;
  for (const auto x : request.x.empty() ? std::vector<std::string_view>{kStep, kEpoch, kTime}
                                        : std::vector<std::string_view>{request.x}) {
    missing.clear();
    for (const auto& recording : recordings) {
      const auto* curve = find_curve(recording, metric);
      if (curve != nullptr && places(*curve, x).empty()) missing = fmt::format("{} has no {}s", recording.run, x);
    }
    if (missing.empty()) return std::string(x);
  }
  if (!request.x.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the metric '{}' of {}; give another --x, or other metrics with --metric",
                printable(metric), printable(missing));
  }
  throw Error(ErrorCode::kInvalidArgument,
              "the runs have no common axis for the metric '{}': one has only steps and another only epochs; draw them "
              "apart, or choose other metrics with --metric",
              printable(metric));
}

/// Returns what to subtract from times: the run's first time if they are clock times, 0 if they are sums of durations.
double time_origin(const Recording& recording) {
  constexpr double kYear = 3e7;
  double origin = HUGE_VAL;
  for (const auto& curve : recording.curves) {
    for (const double time : curve.times) {
      if (time > kYear) origin = std::min(origin, time);
    }
  }
  return std::isfinite(origin) ? origin : 0;
}

std::vector<view::ChartPoint> points_of(const Curve& curve, std::string_view x, double origin, double smoothing) {
  const auto& all = places(curve, x);
  if (!all.empty() && all.front() < origin) origin = 0;
  std::vector<view::ChartPoint> points;
  points.reserve(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::isfinite(all[i])) points.push_back({all[i] - origin, curve.values[i]});
  }
  // If two processes wrote at once, the points may be out of order.
  if (!std::ranges::is_sorted(points, {}, &view::ChartPoint::x))
    std::ranges::stable_sort(points, {}, &view::ChartPoint::x);
  if (smoothing > 0) view::smooth(points, smoothing);
  return points;
}

/// Returns names that tell the runs apart: the last parts of their paths, or whole paths if two last parts are equal.
std::vector<std::string> names_of(const std::vector<Recording>& recordings) {
  std::vector<std::string> names;
  std::set<std::string> different;
  for (const auto& recording : recordings) {
    std::string_view path = recording.run;
    while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
    names.emplace_back(base_name(path));
    different.insert(names.back());
  }
  if (different.size() == names.size()) return names;
  std::ranges::transform(recordings, names.begin(), &Recording::run);
  return names;
}

std::string json_text(std::string_view text) { return json_line(nlohmann::json(text)); }

}  // namespace

const Curve* find_curve(const Recording& recording, std::string_view metric) {
  const auto found = std::ranges::find(recording.curves, metric, &Curve::metric);
  return found == recording.curves.end() ? nullptr : &*found;
}

std::vector<std::string> metrics_of(const std::vector<Recording>& recordings) {
  std::vector<std::string> metrics;
  for (const auto& recording : recordings) {
    for (const auto& curve : recording.curves) {
      if (std::ranges::find(metrics, curve.metric) == metrics.end()) metrics.push_back(curve.metric);
    }
  }
  return metrics;
}

view::Chart chart_of(const ChartRequest& request, const std::vector<Recording>& recordings,
                     std::vector<std::string>& notes) {
  const auto metrics = chosen_metrics(request, recordings, notes);
  const auto names = names_of(recordings);
  view::Chart chart{.has_log_y = request.has_log_y, .panels = {}};
  for (const auto& metric : metrics) {
    const auto x = chosen_x(request, recordings, metric);
    view::ChartPanel panel{.title = metric, .x_title = x, .x_is_time = x == kTime, .lines = {}};
    for (size_t i = 0; i < recordings.size(); ++i) {
      const auto* curve = find_curve(recordings[i], metric);
      if (curve == nullptr) continue;
      const double origin = panel.x_is_time ? time_origin(recordings[i]) : 0;
      panel.lines.push_back({names[i], points_of(*curve, x, origin, request.smoothing)});
    }
    chart.panels.push_back(std::move(panel));
  }
  return chart;
}

// CSV and JSON contain every value, so they are written without first building a tree or a table in memory.

void print_json(const view::Chart& chart, std::ostream& out) {
  out << "{\"curves\": [";
  const char* before = "\n";
  for (const auto& panel : chart.panels) {
    for (const auto& line : panel.lines) {
      out << before
          << fmt::format("{{\"metric\": {}, \"run\": {}, \"x\": {}, \"points\": [", json_text(panel.title),
                         json_text(line.name), json_text(panel.x_title));
      const char* comma = "";
      for (const auto& [x, y] : line.points) {
        out << comma << (std::isfinite(y) ? fmt::format("[{}, {}]", x, y) : fmt::format("[{}, null]", x));
        comma = ", ";
      }
      out << "]}";
      before = ",\n";
    }
  }
  out << "\n]}\n";
}

void print_csv(const view::Chart& chart, std::ostream& out) {
  out << "metric,run,axis,x,value\n";
  for (const auto& panel : chart.panels) {
    for (const auto& line : panel.lines) {
      const auto row =
          to_csv({.columns = {{"metric"}, {"run"}, {"axis"}}, .rows = {{panel.title, line.name, panel.x_title}}});
      const auto begin = row.find('\n') + 1;
      const auto names = row.substr(begin, row.size() - begin - 1);
      for (const auto& [x, y] : line.points) out << names << fmt::format(",{},{}\n", x, y);
    }
  }
}

}  // namespace yoke::curve

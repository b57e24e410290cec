#include "yoke/train/watch/detail/steps_report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "yoke/base/json.h"

namespace yoke::train::detail {
namespace {

double in_microseconds(double ms) { return std::round(ms * 1000) / 1000; }

/// The mean of a step in milliseconds, and its standard error from the spread of the windows. `ns_of_window`: sums over
/// `steps_per_window` steps.
Json mean_step_time(const std::vector<int64_t>& ns_of_window, int64_t steps_per_window) {
  const auto count = static_cast<double>(ns_of_window.size());
  const auto ms_of = [&](int64_t ns) { return static_cast<double>(ns) / 1e6 / static_cast<double>(steps_per_window); };
  double mean = 0, squares = 0;
  for (const auto ns : ns_of_window) mean += ms_of(ns) / count;
  for (const auto ns : ns_of_window) squares += (ms_of(ns) - mean) * (ms_of(ns) - mean);
  const auto error = ns_of_window.size() < 3 ? Json() : Json(in_microseconds(std::sqrt(squares / (count - 1) / count)));
  return {{"ms", in_microseconds(mean)}, {"error_ms", error}};
}

/// Like mean_step_time(), with what shows whether few windows have much of the mean: how many are long, by kLongPart of
/// yoke/profile/judge.h.
Json step_time(const std::vector<int64_t>& ns_of_window, int64_t steps_per_window) {
  auto json = mean_step_time(ns_of_window, steps_per_window);
  auto sorted = ns_of_window;
  std::ranges::sort(sorted);
  const auto median = sorted[(sorted.size() - 1) / 2];
  json["median_ms"] = in_microseconds(static_cast<double>(median) / 1e6 / static_cast<double>(steps_per_window));
  json["long"] = std::ranges::count_if(sorted, [&](int64_t ns) { return 2 * ns >= 3 * median; });
  json["parts"] = sorted.size();
  return json;
}

int64_t time_in(const PhaseTimes& window, Phase phase) { return window[static_cast<size_t>(phase)]; }

const char* bottleneck_of(const std::optional<Slowdown>& slowdown) {
  if (!slowdown) return "none";
  switch (slowdown->cause) {
    case Slowdown::Cause::kLateRank: return "skew";
    case Slowdown::Cause::kData: return "data_loading";
    case Slowdown::Cause::kExchange: return "communication";
    case Slowdown::Cause::kRest: return "rest";
  }
  return "none";
}

}  // namespace

std::string steps_report(const WatchedSteps& steps) {
  const auto num_windows = steps.ranks.front().size();
  // Of a wait, what the rank has that waits least is the exchange, as in `yoke profile`.
  std::vector<int64_t> exchange_ns(num_windows, INT64_MAX);
  for (const auto& windows : steps.ranks) {
    for (size_t w = 0; w < num_windows; ++w) {
      exchange_ns[w] = std::min(exchange_ns[w], time_in(windows[w], Phase::kWait));
    }
  }
  const auto num_steps = static_cast<int64_t>(num_windows) * steps.steps_per_window;
  Json ranks = Json::array();
  for (const auto& windows : steps.ranks) {
    const auto values = [&](const std::function<int64_t(size_t w)>& ns_of) {
      std::vector<int64_t> of_windows;
      for (size_t w = 0; w < num_windows; ++w) of_windows.push_back(ns_of(w));
      return of_windows;
    };
    const auto mean = [&](const std::function<int64_t(size_t w)>& ns_of) {
      return mean_step_time(values(ns_of), steps.steps_per_window);
    };
    const auto in_phase = [&](Phase phase) { return mean([&](size_t w) { return time_in(windows[w], phase); }); };
    Json phases = {{"data_loading", in_phase(Phase::kData)},
                   {"forward", in_phase(Phase::kForward)},
                   {"backward", in_phase(Phase::kBackward)},
                   {"optimizer", in_phase(Phase::kOptimizer)},
                   {"communication", mean([&](size_t w) { return exchange_ns[w]; })},
                   {"waiting", mean([&](size_t w) { return time_in(windows[w], Phase::kWait) - exchange_ns[w]; })},
                   {"rest", in_phase(Phase::kOther)}};
    const auto whole = [&](size_t w) { return std::accumulate(windows[w].begin(), windows[w].end(), int64_t{0}); };
    ranks.push_back({{"rank", ranks.size()},
                     {"steps", num_steps},
                     {"device", steps.has_device},
                     {"step", step_time(values(whole), steps.steps_per_window)},
                     {"phases", std::move(phases)}});
  }
  const auto& slowdown = steps.slowdown;
  const Json report = {
      {"bottleneck", bottleneck_of(slowdown)},
      {"gain_ceiling_percent", slowdown ? std::round(1e4 * slowdown->lost_ms / slowdown->step_ms) / 100 : 0.0},
      {"evidence", slowdown ? Json::array({to_text(*slowdown)}) : Json::array()},
      {"ranks", std::move(ranks)},
      {"world_size", steps.ranks.size()},
      {"operations", Json::array()},
      {"first_step", steps.first_step},
      {"last_step", steps.first_step + num_steps - 1}};
  return json_page(report);
}

}  // namespace yoke::train::detail

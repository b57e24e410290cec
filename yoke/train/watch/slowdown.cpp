#include "yoke/train/watch/detail/slowdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace yoke::train::detail {
namespace {

constexpr double kLate = 0.1, kData = 0.15, kExchange = 0.2;
/// If a loader needs this share of the step for a batch, it determines how long steps are.
constexpr double kBoundByLoader = 0.85;

constexpr size_t index_of(Phase phase) { return static_cast<size_t>(phase); }

double total(const PhaseTimes& times) {
  return static_cast<double>(std::accumulate(times.begin(), times.end(), int64_t{0}));
}
double wait_of(const PhaseTimes& times) { return static_cast<double>(times[index_of(Phase::kWait)]); }
double work_of(const PhaseTimes& times) { return total(times) - wait_of(times); }
double data_of(const PhaseTimes& times) { return static_cast<double>(times[index_of(Phase::kData)]); }
double loading_of(const PhaseTimes& times) { return static_cast<double>(times.loading_ns); }
/// How long the rank would take without the others. While it waits for one of them, its loader runs ahead, so that it
/// hardly waits for its data, and yet would wait for them if the other one were faster.
double need_of(const PhaseTimes& times) { return std::max(work_of(times), loading_of(times)); }

/// The median of `value` over all ranks but `rank`; of an even number, the lower one.
template <class Value>
double of_others(const std::vector<PhaseTimes>& ranks, size_t rank, Value value) {
  std::vector<double> values;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i != rank) values.push_back(value(ranks[i]));
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double mean_step(const std::vector<PhaseTimes>& ranks) {
  double sum = 0;
  for (const auto& times : ranks) sum += total(times);
  return sum / static_cast<double>(ranks.size());
}

/// The rank for which the others wait; nullopt: none.
std::optional<size_t> late_rank(const std::vector<PhaseTimes>& ranks) {
  const auto slowest = std::ranges::max_element(ranks, {}, work_of);
  const auto rank = static_cast<size_t>(slowest - ranks.begin());
  const double lateness = work_of(*slowest) - of_others(ranks, rank, need_of);
  const bool is_late =
      lateness > kLate * mean_step(ranks) && of_others(ranks, rank, wait_of) - wait_of(*slowest) >= lateness / 2;
  return is_late ? std::optional(rank) : std::nullopt;
}

/// The sums of the windows from number `first` on.
std::vector<PhaseTimes> sums(const std::vector<std::vector<PhaseTimes>>& ranks, size_t first) {
  std::vector<PhaseTimes> result;
  for (const auto& windows : ranks) {
    PhaseTimes sum = {};
    for (size_t w = first; w < windows.size(); ++w) {
      for (size_t i = 0; i < kNumPhases; ++i) sum[i] += windows[w][i];
      sum.loading_ns += windows[w].loading_ns;
    }
    result.push_back(sum);
  }
  return result;
}

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::kData: return "waiting for its data";
    case Phase::kForward: return "in forward";
    case Phase::kBackward: return "in backward";
    case Phase::kWait: return "waiting for the others";
    case Phase::kOptimizer: return "between backward and the end of the optimizer's step";
    case Phase::kOther: return "outside of the steps, as in a checkpoint or in output";
  }
  return "";
}

/// How long ranks wait for their data, be it one after the other.
double lost_to_data(const std::vector<PhaseTimes>& all) {
  double sum = 0, most_loading = 0, most = INFINITY;
  for (const auto& times : all) {
    sum += data_of(times);
    most_loading = std::max(most_loading, loading_of(times));
    most = std::min(most, data_of(times) + wait_of(times));
  }
  // The rank whose batch comes last waits for it, and the others wait for the rank: their waits add up.
  if (most_loading >= kBoundByLoader * mean_step(all)) return std::min(sum, most);
  return sum / static_cast<double>(all.size());
}

std::string in_ms(double ms) { return ms < 9.95 ? fmt::format("{:.1f} ms", ms) : fmt::format("{:.0f} ms", ms); }

}  // namespace

std::optional<Slowdown> find_slowdown(const std::vector<std::vector<PhaseTimes>>& ranks, int64_t steps_per_window,
                                      int64_t first_step) {
  if (ranks.empty() || ranks.front().size() < kMinWindows) return std::nullopt;
  const size_t num_windows = ranks.front().size();
  for (const auto& windows : ranks) {
    if (windows.size() != num_windows) return std::nullopt;
  }
  const auto ms_of = [&](double ns, size_t first) {
    return ns / 1e6 / static_cast<double>(steps_per_window) / static_cast<double>(num_windows - first);
  };
  if (ranks.size() > 1) {
    std::vector<std::optional<size_t>> late;
    for (size_t w = 0; w < num_windows; ++w) {
      std::vector<PhaseTimes> of_window;
      for (const auto& windows : ranks) of_window.push_back(windows[w]);
      late.push_back(late_rank(of_window));
    }
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      std::optional<size_t> first;  // the window from which on `rank` is late
      for (size_t w = num_windows, num_late = 0; w-- > 0;) {
        if (late[w] != rank) continue;
        ++num_late;
        if (const auto num = num_windows - w; num >= kMinWindows && 8 * num_late >= 7 * num) first = w;
      }
      if (!first) continue;
      const auto all = sums(ranks, *first);
      const auto excess = [&](size_t phase) {
        const auto value = [phase](const PhaseTimes& times) { return static_cast<double>(times[phase]); };
        return value(all[rank]) - of_others(all, rank, value);
      };
      size_t worst = index_of(Phase::kData);
      for (size_t phase = 0; phase < kNumPhases; ++phase) {
        if (phase != index_of(Phase::kWait) && excess(phase) > excess(worst)) worst = phase;
      }
      return Slowdown{.cause = Slowdown::Cause::kLateRank,
                      .rank = static_cast<int64_t>(rank),
                      .phase = static_cast<Phase>(worst),
                      .lost_ms = ms_of(work_of(all[rank]) - of_others(all, rank, need_of), *first),
                      .step_ms = ms_of(mean_step(all), *first),
                      .since = first_step + static_cast<int64_t>(*first) * steps_per_window};
    }
  }
  const auto all = sums(ranks, 0);
  const double step = mean_step(all);
  const double data = lost_to_data(all);
  double wait = wait_of(all.front());
  for (const auto& times : all) wait = std::min(wait, wait_of(times));
  if (data >= kData * step) {
    return Slowdown{
        .cause = Slowdown::Cause::kData, .phase = Phase::kData, .lost_ms = ms_of(data, 0), .step_ms = ms_of(step, 0)};
  }
  if (ranks.size() > 1 && wait >= kExchange * step) {
    return Slowdown{.cause = Slowdown::Cause::kExchange,
                    .phase = Phase::kWait,
                    .lost_ms = ms_of(wait, 0),
                    .step_ms = ms_of(step, 0)};
  }
  return std::nullopt;
}

Clock::duration longest_time(const std::vector<std::vector<PhaseTimes>>& ranks) {
  int64_t longest = 0;
  for (const auto& times : sums(ranks, 0)) longest = std::max(longest, static_cast<int64_t>(total(times)));
  return std::chrono::nanoseconds(longest);
}

std::string to_text(const Slowdown& slowdown) {
  const auto share = fmt::format("{} of each step of {} ({:.0f} %)", in_ms(slowdown.lost_ms), in_ms(slowdown.step_ms),
                                 100 * slowdown.lost_ms / slowdown.step_ms);
  switch (slowdown.cause) {
    case Slowdown::Cause::kLateRank:
      return fmt::format("rank {} is late by {} since step {}, {}; the others wait for it", slowdown.rank, share,
                         slowdown.since, name_of(slowdown.phase));
    case Slowdown::Cause::kData:
      return fmt::format("{} pass while ranks wait for their data: give the loader more workers, or cheaper samples",
                         share);
    case Slowdown::Cause::kExchange:
      return fmt::format(
          "{} pass until the gradients are averaged, although no rank is late: the exchange is slow for "
          "this model; average less often or send less",
          share);
  }
  return "";
}

bool is_news(const std::optional<Slowdown>& before, const Slowdown& now) {
  if (!before || before->cause != now.cause || before->phase != now.phase) return true;
  if (now.cause == Slowdown::Cause::kLateRank && before->rank != now.rank) return true;
  return now.lost_ms > 1.5 * before->lost_ms;
}

}  // namespace yoke::train::detail

#include "yoke/train/watch/detail/slowdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace yoke::train::detail {
namespace {

constexpr double kLate = 0.1, kData = 0.15, kExchange = 0.2, kRest = 0.15;
constexpr double kLeastRestMs = 0.1;  // a Run and its figures take some of a step of 0.1 ms
/// A rank that is late in some windows alone is so by this share of each.
constexpr double kLateNowAndThen = 0.3;
/// If a loader needs this share of the step for a batch, it determines how long steps are.
constexpr double kBoundByLoader = 0.85;

constexpr size_t index_of(Phase phase) { return static_cast<size_t>(phase); }

double total(const PhaseTimes& times) {
  return static_cast<double>(std::accumulate(times.begin(), times.end(), int64_t{0}));
}
double wait_of(const PhaseTimes& times) { return static_cast<double>(times[index_of(Phase::kWait)]); }
double work_of(const PhaseTimes& times) { return total(times) - wait_of(times); }
double data_of(const PhaseTimes& times) { return static_cast<double>(times[index_of(Phase::kData)]); }
double rest_of(const PhaseTimes& times) { return static_cast<double>(times[index_of(Phase::kOther)]); }
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

/// By how much the rank takes longer than the others need.
double lateness_of(const std::vector<PhaseTimes>& ranks, size_t rank) {
  return work_of(ranks[rank]) - of_others(ranks, rank, need_of);
}

/// The rank for which the others wait; nullopt: none.
std::optional<size_t> late_rank(const std::vector<PhaseTimes>& ranks) {
  const auto slowest = std::ranges::max_element(ranks, {}, work_of);
  const auto rank = static_cast<size_t>(slowest - ranks.begin());
  const double lateness = lateness_of(ranks, rank);
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
    case Phase::kOther: return "after the optimizer's step, as in an evaluation, a checkpoint or output";
  }
  return "";
}

/// The phase in which the rank takes longer than the others.
Phase longer_phase(const std::vector<PhaseTimes>& ranks, size_t rank) {
  const auto excess = [&](size_t phase) {
    const auto value = [phase](const PhaseTimes& times) { return static_cast<double>(times[phase]); };
    return value(ranks[rank]) - of_others(ranks, rank, value);
  };
  size_t worst = index_of(Phase::kData);
  for (size_t phase = 0; phase < kNumPhases; ++phase) {
    if (phase != index_of(Phase::kWait) && excess(phase) > excess(worst)) worst = phase;
  }
  return static_cast<Phase>(worst);
}

struct Late {
  size_t rank = 0;
  size_t first = 0;  ///< The window from which on the rank is late.
};

/// A window in which the others wait for `rank`.
struct LateWindow {
  size_t window = 0, rank = 0;
  double lateness = 0;
  bool is_long = false;  ///< The lateness is a large part of it.
};

std::vector<LateWindow> late_windows(const std::vector<std::vector<PhaseTimes>>& ranks) {
  std::vector<LateWindow> found;
  for (size_t w = 0; w < ranks.front().size(); ++w) {
    std::vector<PhaseTimes> of_window;
    for (const auto& windows : ranks) of_window.push_back(windows[w]);
    const auto rank = late_rank(of_window);
    if (!rank) continue;
    const double lateness = lateness_of(of_window, *rank);
    found.push_back({w, *rank, lateness, lateness >= kLateNowAndThen * mean_step(of_window)});
  }
  return found;
}

/// The rank that is late in seven of eight windows up to the last one.
std::optional<Late> late_in_most(const std::vector<LateWindow>& windows, size_t num_windows, size_t num_ranks) {
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    std::optional<Late> found;
    for (size_t i = windows.size(), num_late = 0; i-- > 0;) {
      if (windows[i].rank != rank) continue;
      ++num_late;
      const auto num = num_windows - windows[i].window;
      if (num >= kMinWindows && 8 * num_late >= 7 * num) found = {.rank = rank, .first = windows[i].window};
    }
    if (found) return found;
  }
  return std::nullopt;
}

/// The rank that is late in some windows, at least eight and up to now, and has 7/8 of the lateness of all. Of a window
/// that is far longer than the others, as by another program, only a part counts.
std::optional<Late> late_now_and_then(const std::vector<LateWindow>& windows, size_t num_windows, size_t num_ranks) {
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    std::vector<double> own;
    for (const auto& window : windows) {
      if (window.rank == rank && window.is_long) own.push_back(window.lateness);
    }
    if (own.size() < kMinWindows) continue;
    std::ranges::sort(own);
    const double most = 2 * own[own.size() / 2];
    std::optional<Late> found;
    double of_rank = 0, of_all = 0;
    size_t num_late = 0, last = 0;
    for (size_t i = windows.size(); i-- > 0;) {
      of_all += std::min(windows[i].lateness, most);
      if (windows[i].rank != rank || !windows[i].is_long) continue;
      of_rank += std::min(windows[i].lateness, most);
      if (++num_late == 1) last = windows[i].window;
      const size_t first = windows[i].window;
      const bool goes_on = (num_windows - 1 - last) * num_late <= 2 * (last + 1 - first);
      if (goes_on && num_late >= kMinWindows && of_rank >= 0.875 * of_all) found = {.rank = rank, .first = first};
    }
    if (found) return found;
  }
  return std::nullopt;
}

std::optional<Late> find_late(const std::vector<std::vector<PhaseTimes>>& ranks) {
  if (ranks.size() < 2) return std::nullopt;
  const size_t num_windows = ranks.front().size();
  const auto windows = late_windows(ranks);
  if (const auto found = late_in_most(windows, num_windows, ranks.size())) return found;
  // What a rank does every N steps, such as an evaluation, is in some windows alone.
  const auto found = late_now_and_then(windows, num_windows, ranks.size());
  if (!found) return std::nullopt;
  const auto since = sums(ranks, found->first);
  const bool is_enough = lateness_of(since, found->rank) > kLate * mean_step(since);
  return is_enough && longer_phase(since, found->rank) == Phase::kOther ? found : std::nullopt;
}

bool is_bound_by_loader(const std::vector<PhaseTimes>& all) {
  return loading_of(*std::ranges::max_element(all, {}, loading_of)) >= kBoundByLoader * mean_step(all);
}

/// How long ranks wait for their data, be it one after the other.
double lost_to_data(const std::vector<PhaseTimes>& all) {
  double sum = 0, most = INFINITY;
  for (const auto& times : all) {
    sum += data_of(times);
    most = std::min(most, data_of(times) + wait_of(times));
  }
  // The rank whose batch comes last waits for it, and the others wait for the rank: their waits add up.
  return is_bound_by_loader(all) ? std::min(sum, most) : sum / static_cast<double>(all.size());
}

/// How long ranks wait for the mean of the gradients although none is late; 0: not long in most windows. On a machine
/// whose processors have other work, too, ranks are late in turns, which makes some windows long: the median is that of
/// the exchange.
double lost_to_exchange(const std::vector<std::vector<PhaseTimes>>& ranks) {
  if (ranks.size() < 2) return 0;
  const size_t num_windows = ranks.front().size();
  std::vector<double> least_waits;
  size_t num_slow = 0;
  for (size_t w = 0; w < num_windows; ++w) {
    double least = INFINITY, step = 0;
    for (const auto& windows : ranks) {
      least = std::min(least, wait_of(windows[w]));
      step += total(windows[w]) / static_cast<double>(ranks.size());
    }
    least_waits.push_back(least);
    num_slow += least >= kExchange * step ? 1 : 0;
  }
  if (4 * num_slow < 3 * num_windows) return 0;
  std::ranges::sort(least_waits);
  return least_waits[(num_windows - 1) / 2] * static_cast<double>(num_windows);
}

std::string in_ms(double ms) { return ms < 9.95 ? fmt::format("{:.1f} ms", ms) : fmt::format("{:.0f} ms", ms); }

}  // namespace

std::optional<Slowdown> find_slowdown(const std::vector<std::vector<PhaseTimes>>& ranks, int64_t steps_per_window,
                                      int64_t first_step, bool has_device) {
  if (ranks.empty() || ranks.front().size() < kMinWindows) return std::nullopt;
  const size_t num_windows = ranks.front().size();
  for (const auto& windows : ranks) {
    if (windows.size() != num_windows) return std::nullopt;
  }
  const auto ms_of = [&](double ns, size_t first) {
    return ns / 1e6 / static_cast<double>(steps_per_window) / static_cast<double>(num_windows - first);
  };
  if (const auto late = find_late(ranks)) {
    const auto all = sums(ranks, late->first);
    return Slowdown{.cause = Slowdown::Cause::kLateRank,
                    .rank = static_cast<int64_t>(late->rank),
                    .phase = longer_phase(all, late->rank),
                    .lost_ms = ms_of(lateness_of(all, late->rank), late->first),
                    .step_ms = ms_of(mean_step(all), late->first),
                    .since = first_step + static_cast<int64_t>(late->first) * steps_per_window};
  }
  const auto all = sums(ranks, 0);
  const double step = mean_step(all), data = lost_to_data(all);
  std::optional<Slowdown> found;
  const auto consider = [&](Slowdown::Cause cause, Phase phase, double lost) {
    const double lost_ms = ms_of(lost, 0);
    if (!found || lost_ms > found->lost_ms) {
      found = {.cause = cause, .phase = phase, .lost_ms = lost_ms, .step_ms = ms_of(step, 0)};
    }
  };
  if (data >= kData * step) consider(Slowdown::Cause::kData, Phase::kData, data);
  if (found && is_bound_by_loader(all)) return found;  // anything else may become faster in vain
  if (const double exchange = lost_to_exchange(ranks); exchange > 0) {
    consider(Slowdown::Cause::kExchange, Phase::kWait, exchange);
  }
  double rest = INFINITY;
  for (const auto& times : all) rest = std::min(rest, rest_of(times));
  if (!has_device && rest >= kRest * step && ms_of(rest, 0) >= kLeastRestMs) {
    consider(Slowdown::Cause::kRest, Phase::kOther, rest);
  }
  return found;
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
          "this model, so average less often or send less; or processors have other work, too (`yoke ps`)",
          share);
    case Slowdown::Cause::kRest:
      return fmt::format("{} pass {} within the epoch: do it less often, or make it cheaper", share,
                         name_of(Phase::kOther));
  }
  return "";
}

bool is_news(const std::optional<Slowdown>& before, const Slowdown& now) {
  if (!before || before->cause != now.cause || before->phase != now.phase) return true;
  if (now.cause == Slowdown::Cause::kLateRank && before->rank != now.rank) return true;
  return now.lost_ms > 1.5 * before->lost_ms;
}

}  // namespace yoke::train::detail

#include "yoke/tune/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>

#include "yoke/base/format.h"

namespace yoke::tune {
namespace {

constexpr int64_t kFirst = 32;         // unless the options exclude it
constexpr double kIgnoredSpan = 8;     // times that the batch must have grown before its effect can be judged
constexpr double kCertainSpan = 64;    // times after which a program without any effect is not run any more
constexpr double kSuspiciousDrop = 5;  // tolerances
constexpr double kFlat = 0.02;         // larger sizes that gain less than this do not lead anywhere
constexpr size_t kNumContenders = 3;
constexpr double kUnsteady = 0.1;  // a machine on which one size takes so much longer another time
constexpr size_t kMaxProbes = 60;
constexpr double kPlateauSpan = 4;  // times the batch that a step must take as if they were none

/// All that is known about one batch size.
struct Known {
  std::optional<Measurement> best;  ///< The fastest run that measured speed. Other load only makes runs slower.
  double slowest_seconds = 0;       ///< The time of a step in the slowest of these runs.
  int64_t num_ok = 0, num_failed = 0;
  bool is_out_of_memory = false;
  std::optional<Memory> memory;  ///< The largest use among the runs that count for memory.
};

/// The measurements, arranged for the questions of decide().
class Table {
 public:
  Table(const SearchOptions& options, std::span<const Measurement> all) : options_(options) {
    for (const auto& run : all) add(run);
    if (options.num_samples) {
      const int64_t ranks = options.is_per_rank ? num_ranks_ : 1;
      largest_ = std::min(largest_, std::max(options.min, *options.num_samples / ranks));
    }
  }

  const std::map<int64_t, Known>& sizes() const { return sizes_; }
  const Known* find(int64_t batch) const {
    const auto found = sizes_.find(batch);
    return found == sizes_.end() ? nullptr : &found->second;
  }
  /// The largest size that the options allow.
  int64_t largest() const { return largest_; }
  double wall_seconds() const { return wall_seconds_; }

  double rate(const Known& known) const { return samples_per_second(*known.best, options_.is_per_rank); }

  /// How much longer a step took in one run than in another one with the same size.
  double unsteadiness() const {
    double result = 0;
    for (const auto& [batch, known] : sizes_) {
      if (known.best) result = std::max(result, known.slowest_seconds / known.best->step_seconds - 1);
    }
    return result;
  }

  /// Sizes with a speed, ascending. Those that exceed the memory that may be used are left out.
  std::vector<int64_t> measured() const {
    std::vector<int64_t> result;
    for (const auto& [batch, known] : sizes_) {
      if (known.best && batch < smallest_impossible() && !is_over_margin(known)) result.push_back(batch);
    }
    return result;
  }

  /// The smallest size that ran out of memory, or with which the program failed twice while a smaller one worked.
  int64_t smallest_impossible() const {
    for (const auto& [batch, known] : sizes_) {
      if (known.is_out_of_memory) return batch;
      const bool works_above =
          std::any_of(sizes_.upper_bound(batch), sizes_.end(), [](const auto& size) { return size.second.num_ok > 0; });
      if (known.num_failed > 1 && known.num_ok == 0 && !works_above) return batch;
    }
    return INT64_MAX;
  }
  bool is_over_margin(const Known& known) const {
    return known.memory && std::ranges::any_of(*known.memory, [&](const MemoryUse& use) {
             return use.limit_bytes > 0 && static_cast<double>(use.peak_bytes) > allowed(use.limit_bytes);
           });
  }

  /// The memory that exceeds what may be used: "3.2 GiB of the 3.3 GiB that `ulimit -v` allows".
  std::string need_of(int64_t batch) const {
    constexpr std::array kOf = {"are free on this host", "`ulimit -v` allows", "are free on the GPU"};
    const auto& memory = sizes_.at(batch).memory;
    for (size_t i = 0; memory && i < kNumResources; ++i) {
      const auto& use = (*memory)[i];
      if (use.limit_bytes == 0 || static_cast<double>(use.peak_bytes) <= allowed(use.limit_bytes)) continue;
      return fmt::format("{} of the {} that {}", format_bytes(use.peak_bytes), format_bytes(use.limit_bytes),
                         kOf.at(i));
    }
    return "more than that";
  }

  /// The largest size whose predicted memory leaves the margin; nullopt: nothing limits it.
  std::optional<int64_t> largest_fitting() const { return largest_fitting(options_.margin); }
  std::optional<int64_t> largest_fitting(double margin) const {
    std::optional<int64_t> result;
    for (size_t i = 0; i < kNumResources; ++i) {
      std::vector<Point> points;
      int64_t limit = 0;
      for (const auto& [batch, known] : sizes_) {
        if (!known.memory || (*known.memory)[i].peak_bytes == 0) continue;
        points.push_back({static_cast<double>(batch), static_cast<double>((*known.memory)[i].peak_bytes)});
        if ((*known.memory)[i].limit_bytes > 0) limit = (*known.memory)[i].limit_bytes;
      }
      const auto line = fit_memory(points);
      if (!line || limit == 0 || line->per_sample <= 0) continue;
      const double batch =
          std::clamp(((1 - margin) * static_cast<double>(limit) - line->fixed) / line->per_sample, 0.0, 1e15);
      result = std::min(result.value_or(INT64_MAX), static_cast<int64_t>(batch));
    }
    return result;
  }

 private:
  double allowed(int64_t limit) const { return static_cast<double>(limit) * (1 - options_.margin); }

  void add(const Measurement& run) {
    auto& known = sizes_[run.batch];
    wall_seconds_ += run.wall_seconds;
    if (run.outcome == Outcome::kOutOfMemory) known.is_out_of_memory = true;
    if (run.outcome == Outcome::kFailed) ++known.num_failed;
    if (run.outcome != Outcome::kOk) return;
    num_ranks_ = run.num_ranks;
    if (!run.has_worst_case) {
      ++known.num_ok;
      known.slowest_seconds = std::max(known.slowest_seconds, run.step_seconds);
      if (!known.best || run.step_seconds < known.best->step_seconds) known.best = run;
    }
    if (run.has_worst_case != options_.uses_worst_case) return;
    if (!known.memory) known.memory = run.memory;
    for (size_t i = 0; i < kNumResources; ++i) {
      auto& use = (*known.memory)[i];
      use = {std::max(use.peak_bytes, run.memory[i].peak_bytes), run.memory[i].limit_bytes};
    }
  }

  const SearchOptions& options_;
  std::map<int64_t, Known> sizes_;
  int64_t num_ranks_ = 1;
  int64_t largest_ = options_.max;
  double wall_seconds_ = 0;
};

/// The search for one set of measurements. Each function returns the size that its concern wants measured, or 0.
class Search {
 public:
  Search(const SearchOptions& options, std::span<const Measurement> all)
      : options_(options), all_(all), table_(options, all), measured_(table_.measured()) {
    if (const auto start = plateau_start(); start > 0) {
      is_at_plateau_ = true;
      std::erase_if(measured_, [&](int64_t batch) { return batch > start; });
    }
    for (const auto batch : measured_) {
      if (rate(batch) > best_rate_) {
        best_rate_ = rate(batch);
        fastest_ = batch;
      }
    }
    for (const auto batch : measured_) {
      if (rate(batch) < best_rate_ * (1 - options.tolerance)) continue;
      chosen_ = batch;
      break;
    }
  }

  std::variant<Probe, Answer> decide() const {
    if (all_.empty()) return Probe{first(), options_.uses_worst_case, "first"};
    if (measured_.empty() && all_.back().outcome == Outcome::kFailed) return no_answer(all_.back().reason);
    if (is_time_over() || (all_.size() >= kMaxProbes && !measured_.empty())) return answer(Bound::kBudget);
    if (options_.uses_worst_case) {
      if (const auto batch = worst_case_to_learn(); batch > 0) return Probe{batch, true, "memory of the worst case"};
    }
    if (measured_.empty()) {
      if (const auto batch = fitting_without_speed(); batch > 0) return Probe{batch, false, "first"};
      const auto batch = shrink();
      if (batch > 0) return Probe{batch, options_.uses_worst_case, "smaller"};
      const bool has_run = table_.smallest_impossible() > smallest_tried();
      if (!has_run) return no_answer(fmt::format("no batch size fits into memory, not even {}", smallest_tried()));
      auto result =
          no_answer(fmt::format("even batch size {} leaves less memory free than --margin asks for: it needs {}",
                                smallest_tried(), table_.need_of(smallest_tried())));
      result.bound = Bound::kMemory;
      return result;
    }
    const bool is_ignored = seems_ignored(kCertainSpan);
    for (const auto& [batch, purpose] : {std::pair{repeat_failed(), "once more after a failure"},
                                         {repeat_suspicious(), "once more"},
                                         {is_ignored ? 0 : grow(), "growing"},
                                         {is_ignored ? 0 : look_below(), "smaller"},
                                         {is_ignored ? 0 : refine(), "between two sizes"},
                                         {is_ignored ? 0 : confirm(), "once more"}}) {
      if (batch > 0) return Probe{batch, false, purpose};
    }
    if (options_.uses_worst_case && !is_ignored && !is_worst_case_known(chosen_)) {
      return Probe{chosen_, true, "worst case of the answer"};
    }
    return answer(bound());
  }

 private:
  double rate(int64_t batch) const { return table_.rate(table_.sizes().at(batch)); }
  /// Whether no run for speed was made with this size yet.
  bool is_new(int64_t batch) const {
    const auto* const known = table_.find(batch);
    return known == nullptr || (known->num_ok + known->num_failed == 0 && !known->is_out_of_memory);
  }
  int64_t smallest_tried() const { return table_.sizes().begin()->first; }
  int64_t rounded(int64_t batch) const {
    const auto result = round_down(batch, options_.multiple_of);
    return result >= options_.min ? result : 0;
  }
  int64_t first() const {
    const auto batch = rounded(std::clamp(kFirst, options_.min, table_.largest()));
    // No size of the usual ones lies between the bounds: the smallest multiple that is allowed.
    return batch > 0 ? batch : (options_.min + options_.multiple_of - 1) / options_.multiple_of * options_.multiple_of;
  }
  bool is_time_over() const {
    return !measured_.empty() && table_.wall_seconds() + all_.back().wall_seconds > options_.budget_seconds;
  }

  /// Two sizes tell how memory grows; further ones would only cost time.
  int64_t worst_case_to_learn() const {
    std::vector<int64_t> known;
    for (const auto& [batch, size] : table_.sizes()) {
      if (size.memory) known.push_back(batch);
    }
    if (known.size() >= 2) return 0;
    if (known.empty()) return shrink();
    const auto above = rounded(std::min(2 * known[0], largest_possible()));
    return above > known[0] ? above : std::max<int64_t>(0, rounded(known[0] / 2));
  }
  bool is_worst_case_known(int64_t batch) const {
    return std::ranges::any_of(table_.sizes(), [&](const auto& size) {
      return size.first >= batch && size.second.memory && !size.second.is_out_of_memory;
    });
  }

  /// A size whose memory in the worst case is known and allowed, and whose speed is not known.
  int64_t fitting_without_speed() const {
    for (const auto& [batch, known] : table_.sizes()) {
      const bool may_run = known.memory && !table_.is_over_margin(known) && batch < table_.smallest_impossible();
      if (may_run && !known.best && known.num_failed == 0) return batch;
    }
    return 0;
  }

  /// After sizes that ran out of memory: half of the smallest.
  int64_t shrink() const {
    const auto batch = rounded(smallest_tried() / 2);
    return batch > 0 && batch < smallest_tried() ? batch : 0;
  }

  /// The largest size that is allowed and predicted to fit.
  int64_t largest_possible() const {
    auto result = table_.largest();
    if (const auto fitting = table_.largest_fitting()) result = std::min(result, *fitting);
    return std::min(result, table_.smallest_impossible() - 1);
  }

  /// The size from which on steps take no longer, although they did so before: the program has no larger batches,
  /// mostly because its data set has no more samples. 0: there is none.
  int64_t plateau_start() const {
    const auto seconds = [&](int64_t batch) { return table_.sizes().at(batch).best->step_seconds; };
    double best_before = 0;
    for (const auto start : measured_) {
      // A size that is slower than a smaller one may have had bad luck.
      const bool is_slow = 1.1 * rate(start) < best_before;
      best_before = std::max(best_before, rate(start));
      // Where a step takes little longer than the smallest one, it may be all overhead.
      if (is_slow || seconds(start) < 1.5 * seconds(measured_.front())) continue;
      const auto is_far = [&](int64_t batch) {
        return static_cast<double>(batch) >= kPlateauSpan * static_cast<double>(start);
      };
      const auto far = std::ranges::find_if(measured_, is_far);
      if (far == measured_.end() || seconds(*far) >= 1.2 * seconds(start)) continue;
      return *std::ranges::find_if(measured_, [&](int64_t batch) { return 1.2 * seconds(batch) > seconds(*far); });
    }
    return 0;
  }

  int64_t grow() const {
    const auto last = measured_.back();
    if (is_flat() || is_at_plateau_) return 0;
    const auto impossible = table_.smallest_impossible();
    // Between a size that works and one that does not, the middle; the prediction was wrong there.
    const auto wanted = impossible <= 2 * last ? (last + impossible) / 2 : 2 * last;
    auto next = rounded(std::min(wanted, largest_possible()));
    // One measurement does not tell how much of the memory grows with the batch. A smaller size does, or if none is
    // allowed, a little larger one, for which the limit without the margin is enough even if all memory grows.
    if (next <= last && measured_.size() == 1 && table_.largest() > last && table_.smallest_impossible() > 2 * last) {
      const auto smaller = rounded(last / 2), larger = rounded(last + std::max<int64_t>(1, last / 4));
      if (smaller > 0 && smaller < last) return is_new(smaller) ? smaller : 0;
      const bool fits = larger <= std::min(table_.largest(), table_.largest_fitting(0).value_or(INT64_MAX));
      return larger > last && fits && is_new(larger) ? larger : 0;
    }
    return static_cast<double>(next) > 1.2 * static_cast<double>(last) && is_new(next) ? next : 0;
  }

  /// Whether larger sizes are not expected to be faster.
  bool is_flat() const {
    const auto last = measured_.back();
    double before = 0;
    for (const auto batch : measured_) {
      if (batch <= last / 4) before = std::max(before, rate(batch));
    }
    double since = 0;
    for (const auto batch : measured_) {
      if (batch > last / 4) since = std::max(since, rate(batch));
    }
    if (before > 0 && since <= before * (1 + kFlat / 2)) return true;
    // The time that does not depend on the batch no longer matters, and the last doubling has shown it.
    const auto line = time_line();
    if (!line || measured_.size() < 3 || line->per_sample <= 0) return false;
    const bool is_past_knee = line->fixed < kFlat * line->per_sample * static_cast<double>(last);
    const auto previous =
        std::ranges::find_if(measured_.rbegin(), measured_.rend(), [&](int64_t batch) { return batch <= last / 2; });
    return is_past_knee && previous != measured_.rend() && rate(last) <= rate(*previous) * (1 + kFlat);
  }

  int64_t look_below() const {
    const auto smallest = measured_.front();
    if (rate(smallest) < best_rate_ * (1 - 2 * options_.tolerance)) return 0;
    const auto next = rounded(smallest / 2);
    return next > 0 && next < smallest && is_new(next) ? next : 0;
  }

  /// Between the fastest size, or the chosen one, and its neighbours, if they are a doubling apart.
  int64_t refine() const {
    for (const auto centre : {fastest_, chosen_}) {
      const auto at = std::ranges::find(measured_, centre);
      for (const auto neighbour :
           {at + 1 == measured_.end() ? 0 : *(at + 1), at == measured_.begin() ? 0 : *(at - 1)}) {
        const auto [low, high] = std::minmax(centre, neighbour);
        if (low == 0 || 2 * high <= 3 * low) continue;
        const auto middle = rounded(high <= 2 * low ? (low + high) / 2 : 2 * low);
        if (middle > low && middle < high && is_new(middle)) return middle;
      }
    }
    return 0;
  }

  /// How often each size that may be the answer is run, because one run beside other load looks slow.
  int64_t num_runs_wanted() const { return table_.unsteadiness() > kUnsteady ? 3 : 2; }

  int64_t confirm() const {
    const double near = std::max(2 * options_.tolerance, std::min(0.5, table_.unsteadiness()));
    std::vector<int64_t> contenders;
    for (const auto batch : measured_) {
      if (rate(batch) >= best_rate_ * (1 - near)) contenders.push_back(batch);
    }
    std::ranges::sort(contenders, std::ranges::greater{}, [&](int64_t batch) { return rate(batch); });
    contenders.resize(std::min(contenders.size(), kNumContenders + static_cast<size_t>(num_runs_wanted() - 2)));
    contenders.insert(contenders.begin(), chosen_);
    // Those with the fewest runs first, so that the runs of a size are apart in time.
    const auto next = std::ranges::min_element(contenders, {}, [&](int64_t batch) { return num_ok(batch); });
    return num_ok(*next) < num_runs_wanted() ? *next : 0;
  }
  int64_t num_ok(int64_t batch) const { return table_.sizes().at(batch).num_ok; }

  int64_t repeat_failed() const {
    for (const auto& [batch, known] : table_.sizes()) {
      if (known.num_failed == 1 && known.num_ok == 0 && !known.is_out_of_memory) return batch;
    }
    return 0;
  }

  /// Returns a size that is much slower than a smaller one: other load may have disturbed its run.
  int64_t repeat_suspicious() const {
    double before = 0;
    for (const auto batch : measured_) {
      if (num_ok(batch) < num_runs_wanted() && rate(batch) * (1 + kSuspiciousDrop * options_.tolerance) < before)
        return batch;
      before = std::max(before, rate(batch));
    }
    return 0;
  }

  bool seems_ignored(double span) const {
    if (static_cast<double>(measured_.back()) < span * static_cast<double>(measured_.front())) return false;
    // Little effect differs from none: noise does not rise with each size.
    const auto is_constant = [&](double tolerance, auto&& value) {
      double least = HUGE_VAL, most = 0, last = 0;
      bool rises = measured_.size() >= 5;
      for (const auto batch : measured_) {
        const double x = value(*table_.sizes().at(batch).best);
        least = std::min(least, x);
        most = std::max(most, x);
        rises = rises && x > last;
        last = x;
      }
      return most <= least * (1 + tolerance) && !rises;
    };
    const auto bytes = [](Resource resource) {
      return [=](const Measurement& run) {
        return static_cast<double>(run.memory[static_cast<size_t>(resource)].peak_bytes);
      };
    };
    return is_constant(0.15, [](const Measurement& run) { return run.step_seconds; }) &&
           is_constant(0.03, bytes(Resource::kHost)) && is_constant(0, bytes(Resource::kDevice));
  }

  std::optional<Line> time_line() const {
    std::vector<Point> points;
    for (const auto batch : measured_) {
      points.push_back({static_cast<double>(batch), table_.sizes().at(batch).best->step_seconds});
    }
    return fit_time(points);
  }

  Bound bound() const {
    if (is_at_plateau_) return fastest_ == measured_.back() ? Bound::kDataSet : Bound::kNoGain;
    if (measured_.back() > fastest_ || is_flat()) return Bound::kNoGain;
    const auto impossible = table_.find(table_.smallest_impossible());
    if (impossible != nullptr && !impossible->is_out_of_memory) return Bound::kFailure;
    const auto fitting = table_.largest_fitting();
    if (impossible != nullptr || (fitting && *fitting < table_.largest())) return Bound::kMemory;
    return table_.largest() < options_.max ? Bound::kDataSet : Bound::kMaximum;
  }

  Answer no_answer(std::string problem) const {
    Answer result;
    const bool is_out_of_memory = std::ranges::find(all_, Outcome::kOutOfMemory, &Measurement::outcome) != all_.end();
    result.bound = is_out_of_memory ? Bound::kMemory : Bound::kFailure;
    result.problem = std::move(problem);
    return result;
  }

  Answer answer(Bound why) const {
    Answer result;
    result.bound = why;
    result.chosen = table_.sizes().at(chosen_).best;
    result.fastest = table_.sizes().at(fastest_).best;
    result.time = time_line();
    result.largest_fitting = table_.largest_fitting();
    result.is_ignored = seems_ignored(kIgnoredSpan);
    if (why == Bound::kBudget && num_ok(chosen_) < num_runs_wanted()) {
      result.warnings.push_back(
          fmt::format("the time was over before batch size {} was measured {} times, so the answer is uncertain; "
                      "--budget gives more",
                      chosen_, num_runs_wanted()));
    }
    if (is_at_plateau_) {
      result.warnings.push_back(
          fmt::format("steps with more than {} samples take no longer, so the program seems to have no larger batches, "
                      "as if its data set had about so many samples; --dataset-size tells how many it has",
                      measured_.back()));
    }
    if (table_.unsteadiness() > kUnsteady) {
      result.warnings.push_back(
          fmt::format("with one batch size, steps took {:.0f} % longer in one run than in another, so other programs "
                      "seem to use this machine, and the answer is uncertain",
                      100 * table_.unsteadiness()));
    }
    for (const auto& [batch, known] : table_.sizes()) {
      if (known.num_failed > 0 && known.num_ok > 0) {
        result.warnings.push_back(fmt::format(
            "the program failed once with batch size {} and worked another time, so it is not reliable", batch));
      }
    }
    return result;
  }

  const SearchOptions& options_;
  std::span<const Measurement> all_;
  Table table_;
  std::vector<int64_t> measured_;
  bool is_at_plateau_ = false;
  double best_rate_ = 0;
  int64_t fastest_ = 0, chosen_ = 0;
};

}  // namespace

std::string_view name(Resource resource) {
  return resource == Resource::kHost ? "host" : resource == Resource::kAddressSpace ? "address_space" : "device";
}

std::string_view name(Outcome outcome) {
  return outcome == Outcome::kOk ? "ok" : outcome == Outcome::kOutOfMemory ? "out_of_memory" : "failed";
}

std::string_view name(Bound bound) {
  switch (bound) {
    case Bound::kNoGain: return "no_gain";
    case Bound::kMemory: return "memory";
    case Bound::kMaximum: return "maximum";
    case Bound::kDataSet: return "data_set";
    case Bound::kFailure: return "failure";
    case Bound::kBudget: return "time";
  }
  return "";
}

double samples_per_second(const Measurement& measurement, bool is_per_rank) {
  const auto num_batches = is_per_rank ? measurement.num_ranks : 1;
  return static_cast<double>(measurement.batch * num_batches) / measurement.step_seconds;
}

int64_t round_down(int64_t batch, int64_t multiple_of) {
  if (batch <= 0) return 0;
  const auto width = std::bit_width(static_cast<uint64_t>(batch));
  const int64_t unit = width > 3 ? int64_t{1} << (width - 3) : 1;
  return batch / unit * unit / multiple_of * multiple_of;
}

std::variant<Probe, Answer> decide(const SearchOptions& options, std::span<const Measurement> measurements) {
  return Search(options, measurements).decide();
}

}  // namespace yoke::tune

#include "yoke/profile/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/profile/joint_steps.h"

namespace yoke::profile {
namespace {

constexpr double kWorthShowingPercent = 0.5;
constexpr double kUnexplainedPercent = 20;
/// A rank is named as the straggler if it caused at least this share of the waiting, as the last rank to arrive.
constexpr double kStragglerPercent = 66;
/// The share of steps that must show a cause, for high and for medium confidence in the answer.
constexpr double kHighAgreement = 0.8, kMediumAgreement = 0.5;
constexpr size_t kMinStepsForHigh = 3;
constexpr std::string_view kLoadsData = "loads data";
constexpr int64_t kMaxNameWidth = 80;  // names of kernels have hundreds of characters

template <class Part, class Whole>
double percent(Part part, Whole whole) {
  return whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

double milliseconds(int64_t ns) { return 1e-6 * static_cast<double>(ns); }

bool is_above(Cause cause, int64_t part_ns, int64_t whole_ns) {
  return percent(part_ns, whole_ns) >= rule_of(cause).threshold_percent;
}

/// The sum of `value(element)` over `elements`.
template <class Elements, class Value>
int64_t sum_of(const Elements& elements, const Value& value) {
  int64_t sum = 0;
  for (const auto& element : elements) sum += std::invoke(value, element);
  return sum;
}

/// Sorts accounts by rank, and joins accounts of the same rank.
std::vector<RankAccount> one_of_each_rank(std::vector<RankAccount> accounts) {
  if (accounts.empty()) throw Error(ErrorCode::kInvalidArgument, "there is no trace to judge");
  std::ranges::stable_sort(accounts, [](const RankAccount& a, const RankAccount& b) { return a.rank < b.rank; });
  std::vector<RankAccount> ranks;
  std::set<int64_t> numbers;
  for (auto& account : accounts) {
    const bool is_new = ranks.empty() || ranks.back().rank != account.rank;
    if (is_new) numbers.clear();
    for (const auto& step : account.steps) {
      if (numbers.insert(step.number).second || is_new) continue;
      throw Error(
          ErrorCode::kInvalidArgument,
          "{} and {} both have step {} of rank {}; give the traces of one run only, and name them rankN.json if "
          "they do not say their rank",
          ranks.back().path, account.path, step.number, account.rank);
    }
    if (is_new) {
      ranks.push_back(std::move(account));
      continue;
    }
    auto& rank = ranks.back();
    std::move(account.steps.begin(), account.steps.end(), std::back_inserter(rank.steps));
    std::move(account.operation_ns.begin(), account.operation_ns.end(), std::back_inserter(rank.operation_ns));
    rank.num_without_duration += account.num_without_duration;
    rank.is_truncated = rank.is_truncated || account.is_truncated;
  }
  return ranks;
}

/// REQUIRES: there is a value.
MeanTime mean_time(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const auto value : values) sum += value;
  const auto count = static_cast<double>(values.size());
  MeanTime time{.ms = sum / count};
  if (std::ssize(values) < kMinStepsForError) return time;
  for (const auto value : values) squares += (value - time.ms) * (value - time.ms);
  time.error_ms = std::sqrt(squares / (count - 1) / count);
  return time;
}

std::optional<Spread> spread_of(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  Spread spread{.median_ms = *middle, .num_parts = std::ssize(values)};
  spread.num_long = std::ranges::count_if(values, [&](double value) { return value >= kLongPart * spread.median_ms; });
  return spread;
}

class Judge {
 public:
  explicit Judge(std::vector<RankAccount> accounts)
      : ranks_(one_of_each_rank(std::move(accounts))), joint_(join_steps(ranks_)) {}

  Report run() {
    for (size_t i = 0; i < kNumCauses; ++i) {
      const auto cause = static_cast<Cause>(i);
      const auto finding = cause == Cause::kCommunication || cause == Cause::kSkew ? joint(cause) : local(cause);
      if (finding.ceiling_percent >= kWorthShowingPercent) report_.findings.push_back(finding);
    }
    std::ranges::stable_sort(report_.findings,
                             [](const Finding& a, const Finding& b) { return a.ceiling_percent > b.ceiling_percent; });
    const auto named =
        std::ranges::find_if(report_.findings, [](const Finding& finding) { return finding.is_named(); });
    if (named != report_.findings.end()) report_.bottleneck = *named;
    for (size_t i = 0; i < ranks_.size(); ++i) report_.ranks.push_back(line(i));
    if (report_.bottleneck) add_evidence(*report_.bottleneck);
    add_notes();
    report_.confidence = confidence();
    report_.world_size = ranks_[0].world_size;
    report_.operations = operations();
    return std::move(report_);
  }

 private:
  static int64_t lost_in(const Step& step, Cause cause) { return step.lost_ns[static_cast<size_t>(cause)]; }

  /// Returns the median over the ranks. If only a few ranks lose time to the cause, they are late, which skew reports.
  Finding local(Cause cause) const {
    Finding finding{.cause = cause};
    std::vector<std::pair<double, double>> of_ranks;  // percent, ms a step
    for (const auto& rank : ranks_) {
      const auto lost = sum_of(rank.steps, [&](const Step& step) { return lost_in(step, cause); });
      finding.num_steps += sum_of(
          rank.steps, [&](const Step& step) { return is_above(cause, lost_in(step, cause), step.length_ns) ? 1 : 0; });
      finding.num_steps_seen += std::ssize(rank.steps);
      of_ranks.emplace_back(percent(lost, sum_of(rank.steps, &Step::length_ns)),
                            milliseconds(lost) / static_cast<double>(rank.steps.size()));
    }
    const auto middle = of_ranks.begin() + (std::ssize(of_ranks) - 1) / 2;
    std::nth_element(of_ranks.begin(), middle, of_ranks.end());
    std::tie(finding.ceiling_percent, finding.ms_per_step) = *middle;
    return finding;
  }

  /// The ceiling of skew is the longest wait of any rank in each step, added over the steps. The ceiling of
  /// communication is the time of collectives without waiting, plus the smallest total wait of any rank. If all ranks
  /// wait, they take turns at being late, and without collectives no rank would wait.
  Finding joint(Cause cause) const {
    Finding finding{.cause = cause, .num_steps_seen = std::ssize(joint_)};
    int64_t lost = 0, length = 0;
    std::vector<int64_t> waiting(ranks_.size());
    for (const auto& step : joint_) {
      const auto step_length = step.length_ns();
      const auto part =
          cause == Cause::kCommunication ? step.communication_ns : *std::ranges::max_element(step.waiting_ns);
      lost += std::min(part, step_length);
      length += step_length;
      finding.num_steps += is_above(cause, part, step_length) ? 1 : 0;
      for (size_t i = 0; i < waiting.size(); ++i) waiting[i] += step.waiting_ns[i];
    }
    if (cause == Cause::kCommunication) lost += *std::ranges::min_element(waiting);
    lost = std::min(lost, length);
    finding.ceiling_percent = percent(lost, length);
    finding.ms_per_step = joint_.empty() ? 0 : milliseconds(lost) / static_cast<double>(joint_.size());
    return finding;
  }

  RankLine line(size_t index) const {
    const auto& rank = ranks_[index];
    const auto share = [&](const auto& value) {
      return percent(sum_of(rank.steps, value), sum_of(rank.steps, &Step::length_ns));
    };
    const auto exposed = share([](const Step& step) { return sum_of(step.collectives, &Collective::exposed_ns); });
    const auto waiting = percent(sum_of(joint_, [&](const JointStep& step) { return step.waiting_ns[index]; }),
                                 sum_of(rank.steps, &Step::length_ns));
    const auto times = mean_times(index);
    return {.rank = rank.rank,
            .path = rank.path,
            .num_steps = std::ssize(rank.steps),
            .has_device = rank.has_device,
            .is_truncated = rank.is_truncated,
            .step_ms = milliseconds(sum_of(rank.steps, &Step::length_ns)) / static_cast<double>(rank.steps.size()),
            .computing_percent = share(&Step::computing_ns),
            .loading_percent = share([](const Step& step) { return lost_in(step, Cause::kDataLoading); }),
            .communicating_percent = exposed - waiting,
            .waiting_percent = waiting,
            .unexplained_percent = share(&Step::unexplained_ns),
            .step = times.step,
            .spread = times.spread,
            .phases = times.phases};
  }

  /// A line with times alone.
  RankLine mean_times(size_t index) const {
    const auto& steps = ranks_[index].steps;
    std::map<int64_t, int64_t> waiting_ns;  // by number of the step
    for (const auto& step : joint_) waiting_ns[step.ranks[index]->number] = step.waiting_ns[index];
    std::vector<double> lengths;
    std::array<std::vector<double>, kNumPhases> phases;
    for (const auto& step : steps) {
      auto parts = step.phase_ns;
      auto& communication = parts[static_cast<size_t>(Phase::kCommunication)];
      const auto found = waiting_ns.find(step.number);
      const auto waiting = found == waiting_ns.end() ? 0 : std::min(found->second, communication);
      communication -= waiting;
      parts[static_cast<size_t>(Phase::kWaiting)] = waiting;
      lengths.push_back(milliseconds(step.length_ns));
      for (size_t i = 0; i < kNumPhases; ++i) phases[i].push_back(milliseconds(parts[i]));
    }
    RankLine line{.step = mean_time(lengths), .spread = spread_of(lengths)};
    for (size_t i = 0; i < kNumPhases; ++i) line.phases[i] = mean_time(phases[i]);
    return line;
  }

  std::vector<OperationTime> operations() const {
    std::map<std::string, double> ms;
    for (const auto& rank : ranks_) {
      const auto num_parts = static_cast<double>(rank.steps.size() * ranks_.size());
      for (const auto& [name, ns] : rank.operation_ns) ms[name] += milliseconds(ns) / num_parts;
    }
    std::vector<OperationTime> all;
    for (const auto& [name, time] : ms) all.push_back({name, time});
    std::ranges::stable_sort(all, std::greater(), &OperationTime::ms_per_step);
    all.resize(std::min(all.size(), Report::kNumOperations));
    return all;
  }

  std::optional<Straggler> find_straggler() const {
    size_t worst = 0;
    int64_t most = -1, all = 0;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const auto late = sum_of(joint_, [&](const JointStep& step) { return step.late_ns[i]; });
      if (late > most) std::tie(most, worst) = std::pair(late, i);
      all += late;
    }
    if (percent(most, all) < kStragglerPercent) return std::nullopt;
    return Straggler{ranks_[worst].rank, percent(most, all), why_late(worst)};
  }

  /// Returns what the rank does for longer than the average of the other ranks.
  std::string why_late(size_t index) const {
    const std::pair<double RankLine::*, std::string_view> kinds[] = {
        {&RankLine::computing_percent, "computes"},
        {&RankLine::loading_percent, kLoadsData},
        {&RankLine::unexplained_percent, "is in code that its trace does not name"}};
    double most = 0;
    std::string_view what;
    for (const auto& [member, words] : kinds) {
      double more = 0;
      for (size_t i = 0; i < ranks_.size(); ++i) {
        const auto ms = report_.ranks[i].step_ms * report_.ranks[i].*member / 100;
        more += i == index ? ms : -ms / static_cast<double>(ranks_.size() - 1);
      }
      if (more > most) std::tie(most, what) = std::pair(more, words);
    }
    return what.empty() ? "" : fmt::format("it {} for {:.1f} ms a step longer than the others", what, most);
  }

  template <class... Args>
  void say(fmt::format_string<Args...> sentence, Args&&... args) {
    report_.evidence.push_back(fmt::format(sentence, std::forward<Args>(args)...));
  }

  void add_evidence(const Finding& finding) {
    const auto& rank = ranks_[0];
    const auto& rule = rule_of(finding.cause);
    const auto per_step = [&](int64_t Step::*count) {
      return static_cast<double>(sum_of(rank.steps, count)) / static_cast<double>(rank.steps.size());
    };
    report_.evidence.emplace_back(rank.has_device ? rule.reason : rule.host_reason);
    say("It takes {:.1f} ms of a step, and more than {:.0f} % in {} of {} steps.", finding.ms_per_step,
        rule.threshold_percent, finding.num_steps, finding.num_steps_seen);
    if (const auto& part = rank.largest_part[static_cast<size_t>(finding.cause)]; !part.empty()) {
      say("The largest part of it on rank {} is {}.", rank.rank, fit(printable(part), kMaxNameWidth));
    }
    switch (finding.cause) {
      case Cause::kSkew:
        report_.straggler = find_straggler();
        if (!report_.straggler) return say("The rank that comes last changes from step to step.");
        say("Rank {} comes last in {:.0f} % of the waiting{}{}.", report_.straggler->rank,
            report_.straggler->late_percent, report_.straggler->why.empty() ? "" : "; ", report_.straggler->why);
        if (report_.straggler->why.find(kLoadsData) != std::string::npos) {
          say("While the others wait for it, their loaders run ahead: if these are as slow, as on equal ranks, all are "
              "bound by their data, and a faster rank {} alone saves nothing.",
              report_.straggler->rank);
        }
        return;
      case Cause::kSmallOperations:
        return say("A step of rank {} has {:.0f} {}.", rank.rank, per_step(&Step::num_operations),
                   rank.has_device ? "kernels" : "operations");
      case Cause::kHostSync:
        return say("The host of rank {} waits {:.0f} times a step.", rank.rank, per_step(&Step::num_syncs));
      case Cause::kDeviceCopy:
        return say("{:.0f} % of the time of copies is from or to memory that is not pinned.",
                   100 * rank.pageable_share);
      case Cause::kThreads:
        return say("The program computes with {} of {} processors.", rank.host.num_threads.value_or(0),
                   rank.host.num_cpus.value_or(0));
      default: return;
    }
  }

  void add_notes() {
    const auto note = [&]<class... Args>(fmt::format_string<Args...> sentence, Args&&... args) {
      report_.notes.push_back(fmt::format(sentence, std::forward<Args>(args)...));
    };
    if (lacks_ranks()) {
      note("These are {} of {} ranks; waiting for a missing one counts as communication.", ranks_.size(),
           *ranks_[0].world_size);
    }
    if (const auto* rare = rare_cause()) {
      note(
          "{} takes {:.0f} % of all steps together, but only {} of {} steps lose more than {:.0f} % to it. Record more "
          "steps, and more than the loader has workers, to see whether it comes again.",
          rule_of(rare->cause).title, rare->ceiling_percent, rare->num_steps, rare->num_steps_seen,
          rule_of(rare->cause).threshold_percent);
    }
    if (std::ranges::any_of(ranks_, [](const auto& rank) { return rank.host.has_operations == 0; })) {
      note(
          "The traces have annotations only, so nothing is known but the time in the loader and in the optimizer; "
          "record without --light for the rest.");
    }
    if (joint_.empty())
      note("No step is in the traces of all ranks, so how long ranks wait for each other is not known.");
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const auto& rank = ranks_[i];
      if (!rank.has_steps) {
        note("{} marks no steps (call profiler.step() after each), so {}.", rank.path,
             rank.steps.size() > 1 ? "each step of the optimizer ends one" : "all of it counts as one");
      }
      if (rank.num_without_duration > 0) {
        note("{}: {} events without a usable time were left out.", rank.path, rank.num_without_duration);
      }
      if (rank.is_truncated) note("{} ends in the middle; the events before count.", rank.path);
      if (report_.ranks[i].unexplained_percent >= kUnexplainedPercent) {
        note(
            "Rank {} spends {:.0f} % of the step in code that its trace does not name; mark it with "
            "torch.profiler.record_function (a loader as \"data_loading\").",
            rank.rank, report_.ranks[i].unexplained_percent);
      }
    }
  }

  /// Returns a cause that takes enough time in total, but that too few steps have to name it; null if there is none.
  const Finding* rare_cause() const {
    if (report_.bottleneck) return nullptr;
    const auto found = std::ranges::find_if(report_.findings, [](const Finding& finding) {
      return finding.num_steps > 0 && finding.ceiling_percent >= rule_of(finding.cause).threshold_percent;
    });
    return found == report_.findings.end() ? nullptr : &*found;
  }

  bool lacks_ranks() const { return std::cmp_less(ranks_.size(), ranks_[0].world_size.value_or(1)); }

  Confidence confidence() const {
    const auto most =
        lacks_ranks() || ranks_[0].steps.size() < kMinStepsForHigh ? Confidence::kMedium : Confidence::kHigh;
    if (!report_.bottleneck) {
      const bool is_unexplained = std::ranges::any_of(
          report_.ranks, [](const RankLine& line) { return line.unexplained_percent >= kMostlyUnexplainedPercent; });
      return rare_cause() || is_unexplained ? Confidence::kLow : most;
    }
    const auto& finding = *report_.bottleneck;
    const auto agreement = static_cast<double>(finding.num_steps) / static_cast<double>(finding.num_steps_seen);
    return agreement >= kHighAgreement ? most : agreement >= kMediumAgreement ? Confidence::kMedium : Confidence::kLow;
  }

  const std::vector<RankAccount> ranks_;
  const std::vector<JointStep> joint_;
  Report report_;
};

}  // namespace

std::string_view name(Confidence confidence) {
  return confidence == Confidence::kHigh ? "high" : confidence == Confidence::kMedium ? "medium" : "low";
}

Report judge(std::vector<RankAccount> accounts) { return Judge(std::move(accounts)).run(); }

}  // namespace yoke::profile

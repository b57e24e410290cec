#include "yoke/profile/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "yoke/base/json.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"

namespace yoke::profile {
namespace {

/// With the few steps of a trace, noise exceeds two standard errors often enough to mislead.
constexpr double kStandardErrors = 3;
/// Two runs of one program differ by more than this share of A's step, however even the steps of each are.
constexpr double kLeastNoise = 0.005;
/// A rank differs alone if all others differ by less than this share of its difference.
constexpr double kAlone = 0.5;
/// A phase is named in the verdict if it has at least this share of the step's difference.
constexpr double kExplains = 0.25;
/// Few long steps make the difference if it is at least kMuch of A's step, and the medians differ by less than
/// kMediansAgree of it.
constexpr double kMuch = 0.05, kMediansAgree = 0.25;
/// A difference of this share of A's step is not called none, even if steps vary so much that it may be noise.
constexpr double kTooMuchForNone = 0.2;
constexpr double kWorthARow = 0.005;        // ms
constexpr double kWorthAnOperation = 0.01;  // of A's step
constexpr size_t kMaxOperations = 10;
constexpr int64_t kMaxOperationWidth = 60;

std::optional<double> noise_of(const MeanTime& a, const MeanTime& b, double step_ms) {
  if (!a.error_ms || !b.error_ms) return std::nullopt;
  return std::max(kStandardErrors * std::hypot(*a.error_ms, *b.error_ms), kLeastNoise * step_ms);
}

/// The mean over ranks. Ranks wait for each other, so their steps do not vary independently: the error is the mean of
/// theirs.
template <class Time>
MeanTime mean_of(const Report& report, const Time& time_of) {
  MeanTime mean{.error_ms = 0};
  const auto count = static_cast<double>(report.ranks.size());
  for (const auto& rank : report.ranks) {
    const MeanTime& time = time_of(rank);
    mean.ms += time.ms / count;
    if (!time.error_ms) mean.error_ms.reset();
    if (mean.error_ms) *mean.error_ms += *time.error_ms / count;
  }
  return mean;
}

template <class Time>
TimeDifference difference_of(const Report& a, const Report& b, const Time& time_of) {
  const auto mean_a = mean_of(a, time_of), mean_b = mean_of(b, time_of);
  const auto step = mean_of(a, [](const RankLine& rank) { return rank.step; });
  return {mean_a.ms, mean_b.ms, noise_of(mean_a, mean_b, step.ms)};
}

bool has_same_ranks(const Report& a, const Report& b) {
  return std::ranges::equal(a.ranks, b.ranks, {}, &RankLine::rank, &RankLine::rank);
}

bool has_device(const Report& report) {
  return std::ranges::any_of(report.ranks, [](const RankLine& rank) { return rank.has_device; });
}

/// Whether a phase means the same in A and in B.
bool divides_alike(const Report& a, const Report& b) {
  return a.is_of_run == b.is_of_run && has_device(a) == has_device(b);
}

/// If one rank differs alone, adds it.
void find_rank(const Report& a, const Report& b, PhaseDifference& phase) {
  const auto index = static_cast<size_t>(phase.phase);
  std::vector<double> differences;
  for (size_t i = 0; i < a.ranks.size(); ++i) {
    differences.push_back(b.ranks[i].phases[index].ms - a.ranks[i].phases[index].ms);
  }
  const auto most = std::ranges::max_element(differences, {}, [](double ms) { return std::abs(ms); });
  const auto &of_a = a.ranks[static_cast<size_t>(most - differences.begin())],
             &of_b = b.ranks[static_cast<size_t>(most - differences.begin())];
  if (std::abs(*most) <= noise_of(of_a.phases[index], of_b.phases[index], of_a.step.ms).value_or(0)) return;
  if (std::ranges::count_if(differences, [&](double ms) { return ms / *most > kAlone; }) > 1) return;
  phase.rank = of_a.rank;
  phase.rank_ms = *most;
}

double amount_of(const PhaseDifference& phase) { return phase.rank ? phase.rank_ms : phase.time.ms(); }

/// Ranks wait for one that is late, so waiting explains the step only if nothing else does.
std::optional<PhaseDifference> find_cause(const Comparison& comparison, double sign) {
  const PhaseDifference* most = nullptr;
  const PhaseDifference* waiting = nullptr;
  const auto explains = [&](const PhaseDifference& phase) {
    return sign * amount_of(phase) >= kExplains * std::abs(comparison.step.ms());
  };
  for (const auto& phase : comparison.phases) {
    if (!explains(phase) || (!phase.rank && phase.time.is_noise())) continue;
    if (phase.phase == Phase::kWaiting) {
      waiting = &phase;
    } else if (most == nullptr || sign * amount_of(phase) > sign * amount_of(*most)) {
      most = &phase;
    }
  }
  if (most == nullptr) most = waiting;
  return most == nullptr ? std::nullopt : std::optional(*most);
}

/// Of the rank with most long parts; nullopt if a rank's is not known.
std::optional<Spread> worst_spread(const Report& report) {
  const Spread* worst = nullptr;
  for (const auto& rank : report.ranks) {
    if (!rank.spread) return std::nullopt;
    if (worst == nullptr || rank.spread->num_long > worst->num_long) worst = &*rank.spread;
  }
  return worst == nullptr ? std::nullopt : std::optional(*worst);
}

std::optional<LongSteps> find_long_steps(const Report& a, const Report& b, const TimeDifference& step) {
  const auto of_a = worst_spread(a), of_b = worst_spread(b);
  if (a.is_of_run != b.is_of_run || !of_a || !of_b || std::abs(step.ms()) < kMuch * step.a_ms) return std::nullopt;
  if (std::abs(of_b->median_ms - of_a->median_ms) >= kMediansAgree * std::abs(step.ms())) return std::nullopt;
  LongSteps found{.are_of_b = step.ms() > 0, .a = *of_a, .b = *of_b};
  const auto& those = found.are_of_b ? found.b : found.a;
  if (those.num_long == 0 || those.num_parts == 0) return std::nullopt;
  found.steps_a_part = (found.are_of_b ? b : a).ranks.front().num_steps / those.num_parts;
  return found;
}

std::vector<OperationDifference> find_operations(const Report& a, const Report& b, double least_ms) {
  if (a.operations.empty() || b.operations.empty()) return {};  // of a Run, or of annotations alone
  std::map<std::string, OperationDifference> all;
  for (const auto& operation : a.operations) all[operation.name].a_ms = operation.ms_per_step;
  for (const auto& operation : b.operations) all[operation.name].b_ms = operation.ms_per_step;
  // An operation that is not in a full list may take as long as the last one there.
  const auto unknown = [](const Report& report) {
    return report.operations.size() < Report::kNumOperations ? 0 : report.operations.back().ms_per_step;
  };
  std::vector<OperationDifference> found;
  for (auto& [name, operation] : all) {
    operation.name = name;
    const auto not_known = operation.a_ms == 0 ? unknown(a) : operation.b_ms == 0 ? unknown(b) : 0;
    if (std::abs(operation.ms()) - not_known >= least_ms) found.push_back(operation);
  }
  std::ranges::stable_sort(found, std::greater(), [](const auto& operation) { return std::abs(operation.ms()); });
  found.resize(std::min(found.size(), kMaxOperations));
  return found;
}

std::string steps_of(const Report& report) {
  const auto [fewest, most] = std::ranges::minmax(report.ranks, {}, &RankLine::num_steps);
  return fewest.num_steps == most.num_steps ? fmt::format("{}", most.num_steps)
                                            : fmt::format("{} to {}", fewest.num_steps, most.num_steps);
}

std::vector<std::string> notes_of(const Report& a, const Report& b, const TimeDifference& step) {
  std::vector<std::string> notes;
  if (!has_same_ranks(a, b)) {
    notes.push_back(fmt::format(
        "A has {} rank{} and B {}, not the same ones, so means over ranks are compared and no rank is named.",
        a.ranks.size(), a.ranks.size() == 1 ? "" : "s", b.ranks.size()));
  }
  for (const auto& [name, report] : {std::pair("A", &a), std::pair("B", &b)}) {
    if (std::cmp_less(report->ranks.size(), report->world_size.value_or(1))) {
      notes.push_back(fmt::format("{} has {} of {} ranks; waiting for a missing one counts as communication.", name,
                                  report->ranks.size(), *report->world_size));
    }
    for (const auto& rank : report->ranks) {
      if (!rank.is_truncated) continue;
      notes.push_back(
          fmt::format("{}'s trace of rank {} ends in the middle; the events before count.", name, rank.rank));
    }
    if (report->is_of_run) notes.insert(notes.end(), report->notes.begin(), report->notes.end());
  }
  if (steps_of(a) != steps_of(b)) {
    notes.push_back(fmt::format("A has {} step{} and B {}: all times are means of a step.", steps_of(a),
                                steps_of(a) == "1" ? "" : "s", steps_of(b)));
  }
  if (a.is_of_run != b.is_of_run) {
    notes.push_back(
        fmt::format("Only {} is of a train::Run, which counts what lies between operations as forward, backward or the "
                    "optimizer, and a trace as rest: the whole step is compared.",
                    a.is_of_run ? "A" : "B"));
  }
  if (has_device(a) != has_device(b)) {
    notes.push_back(fmt::format(
        "Only {} used a device, whose kernels are not divided into forward and backward: the whole step is compared.",
        has_device(a) ? "A" : "B"));
  }
  if (!step.noise_ms) {
    notes.push_back(
        fmt::format("With fewer than {} steps, it is not known how much steps vary: record more.", kMinStepsForError));
  }
  return notes;
}

std::string in_ms(double ms) { return fmt::format("{:.{}f} ms", ms, std::abs(ms) < 9.995 ? 2 : 1); }

std::string signed_ms(double ms) { return fmt::format("{:+.2f}", ms); }

std::string_view where_of(const Comparison& comparison, Phase phase) {
  if (phase == Phase::kRest && comparison.is_of_runs) {
    return "after the optimizer's step, as in an evaluation, a checkpoint or output";
  }
  return names_of(phase).where;
}

std::string text_of(const LongSteps& steps) {
  const auto& those = steps.are_of_b ? steps.b : steps.a;
  const auto part =
      steps.steps_a_part > 1 ? fmt::format("windows of {} steps", steps.steps_a_part) : std::string("steps");
  return fmt::format("{} of {} of {}'s {} take {:.1f} times the median or longer, and the medians are {} and {}",
                     those.num_long, those.num_parts, steps.are_of_b ? "B" : "A", part, kLongPart,
                     in_ms(steps.b.median_ms), in_ms(steps.a.median_ms));
}

std::string verdict(const Comparison& comparison) {
  const auto& step = comparison.step;
  const auto difference = std::abs(step.ms());
  if (step.is_noise() && (comparison.long_steps || difference >= kTooMuchForNone * step.a_ms)) {
    const auto most =
        fmt::format("B's step takes {} than A's on average, {} against {} ({:+.0f} %), ",
                    step.ms() > 0 ? "longer" : "less", in_ms(step.b_ms), in_ms(step.a_ms), 100 * step.ms() / step.a_ms);
    return comparison.long_steps
               ? fmt::format("{}by a few long steps: {}.", most, text_of(*comparison.long_steps))
               : fmt::format("{}but steps vary so much that this may be noise ({}): record more of them.", most,
                             in_ms(*step.noise_ms));
  }
  if (step.is_noise()) {
    auto text =
        fmt::format("B's step takes as long as A's: {} and {} differ by less than what is noise in their steps ({}).",
                    in_ms(step.b_ms), in_ms(step.a_ms), in_ms(*step.noise_ms));
    std::string moved;
    for (const auto& phase : comparison.phases) {
      if (std::abs(phase.time.ms()) <= *step.noise_ms || phase.time.is_noise()) continue;
      moved += fmt::format("{}{} {}", moved.empty() ? "" : ", ", signed_ms(phase.time.ms()),
                           where_of(comparison, phase.phase));
    }
    return moved.empty() ? text : fmt::format("{} But phases differ, in ms: {}.", text, moved);
  }
  if (difference < kWorthARow) return fmt::format("B's step takes as long as A's, {}.", in_ms(step.a_ms));
  const auto change = step.a_ms > 0 ? fmt::format(" ({:+.0f} %)", 100 * step.ms() / step.a_ms) : "";
  auto text =
      fmt::format("B's step takes {} {} than A's{}", in_ms(difference), step.ms() > 0 ? "longer" : "less", change);
  if (!comparison.cause) return text + (comparison.phases.empty() ? "." : "; no phase has much of it.");
  const auto& cause = *comparison.cause;
  return fmt::format("{}: {} {}{}.", text, in_ms(std::abs(amount_of(cause))), where_of(comparison, cause.phase),
                     cause.rank ? fmt::format(" of rank {}", *cause.rank) : "");
}

/// The share of the step's difference.
std::optional<double> share_of(const Comparison& comparison, double ms) {
  if (comparison.step.is_noise() || std::abs(comparison.step.ms()) < kWorthARow) return std::nullopt;
  return std::round(1000 * ms / comparison.step.ms()) / 10;
}

Table phases_table(const Comparison& comparison) {
  Table table{.columns = {{"phase"},
                          {"A ms", Align::kRight},
                          {"B ms", Align::kRight},
                          {"difference", Align::kRight},
                          {"noise", Align::kRight, 0, 2},
                          {"share", Align::kRight},
                          {"rank", Align::kLeft, 0, 1}}};
  const auto add = [&](std::string_view name, const TimeDifference& time, const std::string& rank) {
    const auto share = share_of(comparison, time.ms());
    table.rows.push_back({std::string(name), fmt::format("{:.2f}", time.a_ms), fmt::format("{:.2f}", time.b_ms),
                          signed_ms(time.ms()), time.noise_ms ? fmt::format("{:.2f}", *time.noise_ms) : "?",
                          time.is_noise() ? "noise"
                          : share         ? fmt::format("{:.0f} %", *share)
                                          : "-",
                          rank});
  };
  add("step", comparison.step, "");
  for (const auto& phase : comparison.phases) {
    add(names_of(phase.phase).name, phase.time,
        phase.rank ? fmt::format("{}: {}", *phase.rank, signed_ms(phase.rank_ms)) : "");
  }
  return table;
}

Table operations_table(const Comparison& comparison) {
  Table table{.columns = {{"operation", Align::kLeft, 20},
                          {"A ms", Align::kRight},
                          {"B ms", Align::kRight},
                          {"difference", Align::kRight}}};
  for (const auto& operation : comparison.operations) {
    table.rows.push_back({fit(printable(operation.name), kMaxOperationWidth), fmt::format("{:.2f}", operation.a_ms),
                          fmt::format("{:.2f}", operation.b_ms), signed_ms(operation.ms())});
  }
  return table;
}

double to_microseconds(double ms) { return std::round(ms * 1000) / 1000; }

Json json_of(const TimeDifference& time) {
  return {{"a_ms", to_microseconds(time.a_ms)},
          {"b_ms", to_microseconds(time.b_ms)},
          {"difference_ms", to_microseconds(time.ms())},
          {"noise_ms", time.noise_ms ? Json(to_microseconds(*time.noise_ms)) : Json()},
          {"is_noise", time.is_noise()}};
}

}  // namespace

bool TimeDifference::is_noise() const { return noise_ms && std::abs(ms()) <= *noise_ms; }

Comparison compare(const Report& a, const Report& b) {
  Comparison comparison{.step = difference_of(a, b, [](const RankLine& rank) { return rank.step; }),
                        .is_of_runs = a.is_of_run && b.is_of_run};
  comparison.long_steps = find_long_steps(a, b, comparison.step);
  const double sign = comparison.step.ms() < 0 ? -1 : 1;
  const bool compares_ranks = has_same_ranks(a, b) && a.ranks.size() > 1;
  for (size_t i = 0; i < kNumPhases && divides_alike(a, b); ++i) {
    PhaseDifference phase{.phase = static_cast<Phase>(i),
                          .time = difference_of(a, b, [i](const RankLine& rank) { return rank.phases[i]; })};
    if (phase.time.a_ms < kWorthARow && phase.time.b_ms < kWorthARow) continue;
    if (compares_ranks && phase.phase != Phase::kWaiting) find_rank(a, b, phase);
    comparison.phases.push_back(phase);
  }
  std::ranges::stable_sort(comparison.phases, std::greater(),
                           [](const PhaseDifference& phase) { return std::abs(amount_of(phase)); });
  if (!comparison.step.is_noise() && std::abs(comparison.step.ms()) >= kWorthARow)
    comparison.cause = find_cause(comparison, sign);
  comparison.operations = find_operations(a, b, kWorthAnOperation * comparison.step.a_ms);
  comparison.notes = notes_of(a, b, comparison.step);
  if (comparison.long_steps && !comparison.step.is_noise()) {
    comparison.notes.push_back(
        fmt::format("A few long steps have the difference: {}.", text_of(*comparison.long_steps)));
  }
  if (comparison.cause && comparison.cause->phase == Phase::kLoading && comparison.cause->rank) {
    comparison.notes.push_back(
        "While ranks wait for one whose data come late, their own loaders run ahead, so theirs may be as slow: see how "
        "long a sample takes on each rank.");
  }
  return comparison;
}

std::string to_text(const Comparison& comparison, int64_t width) {
  auto text = verdict(comparison) + "\n\n" + to_text(phases_table(comparison), width);
  if (!comparison.operations.empty()) text += '\n' + to_text(operations_table(comparison), width);
  if (!comparison.notes.empty()) text += '\n';
  for (const auto& note : comparison.notes) text += "  " + note + '\n';
  return text;
}

nlohmann::ordered_json to_json(const Comparison& comparison) {
  const auto phase_json = [&](const PhaseDifference& phase) {
    Json json = {{"phase", names_of(phase.phase).name}};
    json.update(json_of(phase.time));
    json["share_percent"] = or_null(share_of(comparison, phase.time.ms()));
    json["rank"] = or_null(phase.rank);
    json["rank_difference_ms"] = phase.rank ? Json(to_microseconds(phase.rank_ms)) : Json();
    return json;
  };
  return {{"verdict", verdict(comparison)},
          {"step", json_of(comparison.step)},
          {"cause", comparison.cause ? phase_json(*comparison.cause) : Json()},
          {"phases", json_list(comparison.phases, phase_json)},
          {"operations", json_list(comparison.operations,
                                   [](const OperationDifference& operation) {
                                     return Json{{"operation", printable(operation.name)},
                                                 {"a_ms", to_microseconds(operation.a_ms)},
                                                 {"b_ms", to_microseconds(operation.b_ms)},
                                                 {"difference_ms", to_microseconds(operation.ms())}};
                                   })},
          {"notes", comparison.notes}};
}

}  // namespace yoke::profile

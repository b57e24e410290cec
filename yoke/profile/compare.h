// yoke/profile/compare.h -- compares two trainings: by how much their steps differ, in which phase and on which rank.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/profile/judge.h"

namespace yoke::profile {

/// A time of A and of B, as means over their ranks.
struct TimeDifference {
  double a_ms = 0, b_ms = 0;
  /// Differences up to this are noise: three standard errors of the difference, and at least
  /// 0.5 % of A's step. nullopt: too few steps to know.
  std::optional<double> noise_ms;

  double ms() const { return b_ms - a_ms; }
  bool is_noise() const;
};

struct PhaseDifference {
  Phase phase = Phase::kRest;
  TimeDifference time;
  std::optional<int64_t> rank;  ///< The only rank that differs so; nullopt: most do, or ranks are not compared.
  double rank_ms = 0;           ///< The difference of that rank.
};

struct OperationDifference {
  std::string name;
  double a_ms = 0, b_ms = 0;
  double ms() const { return b_ms - a_ms; }
};

/// The step has become longer, or shorter, by few long ones: the medians agree, and the means do not.
struct LongSteps {
  bool are_of_b = true;      ///< Otherwise they are of A.
  Spread a = {}, b = {};     ///< Each of the rank that has most of them.
  int64_t steps_a_part = 1;  ///< Of the side that has them.
};

struct Comparison {
  TimeDifference step;
  std::optional<LongSteps> long_steps = {};
  bool is_of_runs = false;  ///< Both are of a train::Run.
  /// The largest difference first; without those that take no time. Empty if A and B divide steps in other ways.
  std::vector<PhaseDifference> phases;
  /// The phase that explains most of the step's difference; nullopt if the step's difference is noise or no phase does.
  std::optional<PhaseDifference> cause;
  std::vector<OperationDifference> operations;  ///< Those that differ by 1 % of A's step or more, the largest first.
  std::vector<std::string> notes;               ///< What makes the two hard to compare.
};

/// Ranks are compared one by one if both have the same. REQUIRES: both have ranks.
Comparison compare(const Report& a, const Report& b);

/// Begins with the verdict. Tables fit into `width` columns; sentences are not broken.
std::string to_text(const Comparison& comparison, int64_t width);

/// The members are described in docs/profile.md.
nlohmann::ordered_json to_json(const Comparison& comparison);

/// Returns the report that to_json() has made, as far as compare() needs it, or one that a train::Run has written; in a
/// folder, profile.json. nullopt: there is no such file, or it is of another kind. Errors  kDataLoss: the report lacks
/// what is needed, such as one of an older version.
std::optional<Report> read_report(const std::filesystem::path& given);

}  // namespace yoke::profile

// yoke/bench/report.h -- the measurements of `yoke bench`, and their results as a sentence, a table and a chart. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "yoke/base/table.h"
#include "yoke/view/chart.h"

namespace yoke::bench {

struct Report {
  std::string sentence;  ///< One or more sentences that follow from the results.
  Table table;
  view::Chart chart;
};

struct Exercise {
  std::string_view name;
  std::string_view summary;
  /// The options of this exercise, separated by spaces: "sizes dtype". Options that all exercises have are left out.
  std::string_view options;
  Report (*report)(const nlohmann::ordered_json& measured);
};

/// Returns the exercises in the order in which a course would use them.
std::span<const Exercise> exercises();

/// Finds an exercise by its name; null if there is none.
const Exercise* find_exercise(std::string_view name);

/// `measured` is the object that libexec/yoke/yoke-bench prints; docs/bench.md describes its members.
/// Errors  kDataLoss: `measured` lacks a member, or its name is not that of an exercise.
Report report(const nlohmann::ordered_json& measured);

}  // namespace yoke::bench

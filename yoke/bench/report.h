// yoke/bench/report.h -- turns the results of an exercise into a sentence, a table and a chart. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "yoke/base/table.h"
#include "yoke/view/chart.h"

namespace yoke::bench {

struct Report {
  std::string sentence;  ///< One or more sentences that follow from the results.
  Table table;
  view::Chart chart;
};

/// `measured` is the object that libexec/yoke/yoke-bench prints; docs/bench.md describes its members.
/// Errors  kDataLoss: `measured` lacks a member, or its name is not that of an exercise.
Report report(const nlohmann::ordered_json& measured);

}  // namespace yoke::bench

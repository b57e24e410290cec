// yoke/bench/report.h -- what the figures of an exercise show: a sentence, a table and a chart. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "yoke/base/table.h"
#include "yoke/view/chart.h"

namespace yoke::bench {

struct Report {
  std::string sentence;  ///< One or more sentences, each of which follows from the figures.
  Table table;
  view::Chart chart;
};

/// `measured` is the object that libexec/yoke/yoke-bench prints; docs/bench.md describes its members.
/// Errors  kDataLoss: it lacks a member, or names no exercise.
Report report(const nlohmann::ordered_json& measured);

}  // namespace yoke::bench

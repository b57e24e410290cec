// yoke/web/page_graphs.h -- the graphs of the page as SVG. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "yoke/web/history.h"

namespace yoke::web {

/// Use as an area and memory as a line, until `now` at the right edge.
std::string recent_graph(const Series& series, Series::Time now);

/// The period that day_graph() draws: 24 hours, or less if the first sample, at `begin`, is younger, so that the graph
/// of a server that has just begun is not a line at its right edge.
std::chrono::hours shown_period(std::optional<Series::Time> begin, Series::Time now);
std::string period_text(std::chrono::hours period);  ///< "the last 4 hours"

/// Use as its mean and the range from its least to its most, and memory as a line; with an axis of hours.
/// REQUIRES: `label` is HTML.
std::string day_graph(const Series& series, Series::Time now, std::chrono::hours period, const std::string& label);

}  // namespace yoke::web

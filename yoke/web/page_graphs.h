// yoke/web/page_graphs.h -- the graphs of the page as SVG. Pure.
#pragma once

#include <string>

#include "yoke/web/history.h"

namespace yoke::web {

/// Use as an area and memory as a line, until `now` at the right edge.
std::string recent_graph(const Series& series, Series::Time now);

/// Use as its mean and the range from its least to its most, and memory as a line; with an axis of hours.
/// REQUIRES: `label` is HTML.
std::string day_graph(const Series& series, Series::Time now, const std::string& label);

}  // namespace yoke::web

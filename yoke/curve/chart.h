// yoke/curve/chart.h -- what `yoke curve` shows of recordings: chooses metrics and an axis that the runs have in
// common.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/curve/recording.h"
#include "yoke/view/chart.h"

namespace yoke::curve {

struct ChartRequest {
  std::vector<std::string> metrics;  ///< Empty: the first ones that tell of learning; with `all`, all.
  bool all = false;
  std::string x;  ///< Empty: the first of step, epoch and time that all curves have.
  double smoothing = 0;
  bool has_log_y = false;
};

/// The curve of a metric; null if there is none.
const Curve* find_curve(const Recording& recording, std::string_view metric);

/// The metrics of all recordings, each once, in the order in which they appear.
std::vector<std::string> metrics_of(const std::vector<Recording>& recordings);

/// A panel for each metric, with a line for each run that has it. `notes` gets what is left out, in sentences.
/// Errors  kNotFound: no run has a metric; kInvalidArgument: the curves do not have the axis, or none in common.
view::Chart chart_of(const ChartRequest& request, const std::vector<Recording>& recordings,
                     std::vector<std::string>& notes);

/// All values of a chart, for programs.
void print_json(const view::Chart& chart, std::ostream& out);
void print_csv(const view::Chart& chart, std::ostream& out);

}  // namespace yoke::curve

// yoke/cli/plan_measure.h -- measures a training on one device for `yoke plan -- CMD`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/cli/command.h"
#include "yoke/profile/trace.h"

namespace yoke::cli {

struct PlanMeasureOptions {
  double seconds = 10;     ///< Steps are timed for so long, after some steps of warm-up.
  double timeout_s = 300;  ///< A program without a step for so long has failed.
  /// Copies of the program that run at once in a second run, each with a GPU of its own if the program uses GPUs.
  std::optional<int64_t> num_neighbours;
  bool shows_output = false;
};

struct MeasuredTraining {
  double step_seconds = 0;  ///< Without recording.
  double spread_percent = 0;
  int64_t num_steps = 0;
  std::optional<double> neighbour_step_seconds;  ///< With the copies; the mean of all of them.
  int64_t device_peak_bytes = 0;                 ///< 0: unknown, or there is no device.
  profile::Trace trace;
};

/// Runs `context.rest` two or three times: to time steps, with copies of it, and to record a trace.
/// Errors  kFailedPrecondition: it failed or made no steps, with its last lines, or there are too few GPUs for its
/// copies; kInvalidArgument: it is a job of several ranks. A signal ends the measurement, and `interruption` is its
/// number.
std::optional<MeasuredTraining> measure_training(const PlanMeasureOptions& options, const Context& context,
                                                 int& interruption);

}  // namespace yoke::cli

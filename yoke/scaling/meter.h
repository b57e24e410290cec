// yoke/scaling/meter.h -- measures a training on one device, from which a prediction begins.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/process.h"
#include "yoke/profile/trace.h"

namespace yoke::scaling {

struct MeterOptions {
  std::vector<std::string> argv;
  Environment environment;  ///< Of the program. Its TMPDIR is used here too.
  std::string yoke;         ///< The path of the command, of which `yoke profile` and `yoke visible` are used.
  double seconds = 10;      ///< Steps are timed for so long, after some steps of warm-up.
  double timeout_s = 300;   ///< A program without a step for so long has failed.
  /// Copies of the program that run at once in a second run, each with a GPU of its own if the program uses GPUs.
  std::optional<int64_t> num_neighbours = {};
  int copy_to = kNullStream;  ///< A descriptor to which the program's output is copied.
  /// Called several times a second with what is being done, and with "" when that has ended.
  std::function<void(const std::string&)> on_progress = [](const std::string&) {};
};

struct MeasuredTraining {
  double step_seconds = 0;  ///< Without recording.
  double spread_percent = 0;
  int64_t num_steps = 0;
  std::optional<double> neighbour_step_seconds;  ///< With the copies; the mean of all of them.
  int64_t device_peak_bytes = 0;                 ///< 0: unknown, or there is no device.
  profile::Trace trace;
};

/// Runs the program two or three times: to time steps, with copies of it, and to record a trace. A signal ends the
/// measurement, and `interruption` is its number.
/// REQUIRES: this process has one thread, and no SignalMessages exists.
/// Errors  kFailedPrecondition: it failed or made no steps, with its last lines, or there are too few GPUs for its
/// copies; kInvalidArgument: it is a job of several ranks.
std::optional<MeasuredTraining> measure_training(const MeterOptions& options, int& interruption);

/// A command line for each of `num_copies` copies of a program, of which each sees one GPU. `visible` is what `yoke
/// visible --json` has printed. Pure.  Errors  kFailedPrecondition: there are too few GPUs.
std::vector<std::vector<std::string>> commands_with_gpus(const MeterOptions& options, int64_t num_copies,
                                                         const std::string& visible);

}  // namespace yoke::scaling

// yoke/bench/measurement.h -- runs the program that measures an exercise.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"

namespace yoke::bench {

struct Measurement {
  std::vector<std::string> argv;
  Environment environment;
};

struct MeasurementOutput {
  int status = 0;      ///< The program's exit status, or 128 plus the signal's number.
  std::string object;  ///< The last line that began with '{': the figures as JSON.
};

/// Runs the program until it ends, and passes signals on. Its other lines tell how far it is.
/// REQUIRES: this process has one thread, and no SignalMessages exists.  Errors  kUnavailable: it cannot be started.
MeasurementOutput run(const Measurement& measurement, const std::function<void(const std::string& line)>& on_progress);

}  // namespace yoke::bench

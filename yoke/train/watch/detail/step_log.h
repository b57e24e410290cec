// yoke/train/watch/detail/step_log.h -- the values of each step as a line of JSON.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "yoke/train/watch/detail/growing_file.h"

namespace yoke::train::detail {

/// When a value was logged: the number of finished steps, and the number of the epoch from 1.
struct StepPlace {
  int64_t step = 0, epoch = 1;
};

struct StepLogOptions {
  int64_t max_pending = 1000;        ///< Number of values that are kept on their devices before they are read together.
  std::chrono::seconds max_wait{5};  ///< After this time, adding a value reads all kept values.
};

/// Appends a line `{"step": 0, "epoch": 1, "time": 1790000000.25, "loss": 0.5}` for each step to a file. A line has the
/// values that were added for one StepPlace, and the time when the first of them was added, in seconds since the Unix
/// epoch.
/// Values that are not finite are strings: "NaN", "Infinity", "-Infinity".
///
/// Devices  values stay on their devices until they are read together, as in a TensorBoardWriter.
class StepLog {
 public:
  /// Keeps the lines at the beginning of an existing file that are from before `first`. Errors: as errno says, with the
  /// path.
  StepLog(const std::filesystem::path& path, const StepPlace& first, const StepLogOptions& options = {});
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;
  ~StepLog();  ///< Writes the kept values. An error is a warning on standard error.

  /// Errors  kInvalidArgument: `value` does not have exactly one real element; those of flush().
  void add(const StepPlace& place, const std::string& name, const at::Tensor& value);

  /// Reads the kept values and writes their lines. Errors: as errno says, with the path; the lines are kept.
  void flush();

 private:
  using Clock = std::chrono::steady_clock;
  struct Value {
    StepPlace place;
    double time;
    std::string name;
    at::Tensor figure;
  };

  GrowingFile file_;
  StepLogOptions options_;
  std::vector<Value> pending_;
  Clock::time_point last_read_ = Clock::now();
};

}  // namespace yoke::train::detail

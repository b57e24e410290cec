// yoke/train/run/detail/report.h -- the output of rank 0 while a training runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "yoke/train/warn.h"

namespace yoke::train {

struct EpochRow {
  int64_t number = 0;                                   ///< The number of the epoch, from 1.
  std::vector<std::pair<std::string, double>> figures;  ///< In the order in which they were first logged.
  double samples_per_second = 0;                        ///< Samples per second of all ranks, during training only.
  std::chrono::duration<double> time{};                 ///< Duration of the whole epoch.
};

/// Writes the table of epochs to standard output and to `metrics.csv`.
///
/// Columns  a figure has a column of its own from the epoch on in which it was first logged. In an epoch without it,
///          its cell is empty in the file, and "-" in the table, which gets a new header when a column is added.
class EpochTable {
 public:
  /// Keeps the epochs up to `num_kept` of an existing metrics.csv, which belong to the resumed run. If a row does not
  /// fit the header, as older versions wrote it, its figures cannot be told apart: they are left out, the file is kept
  /// as metrics.csv.old, and `warn` is called. Errors  kFailedPrecondition: the file is not one of a Run.
  EpochTable(std::filesystem::path folder, int64_t num_kept, const Warn& warn);
  /// Errors  kUnavailable or as errno says, if metrics.csv cannot be written.
  void add(const EpochRow& row);

 private:
  struct Row {
    std::string epoch;
    std::vector<std::string> figures;  ///< By column; columns that were added later may be missing at the end.
    std::string samples_per_second, seconds;
  };
  void read(int64_t num_kept, const Warn& warn);
  void print(const EpochRow& row);
  void write() const;

  std::filesystem::path path_;
  std::vector<std::string> names_;  ///< The columns of figures.
  std::vector<Row> rows_;           ///< Of the whole file, which is replaced at once.
  size_t num_titles_ = 0;           ///< Number of columns in the last header of the table; 0 before the first one.
};

/// A progress line, overwritten at most five times per second. Shown only if standard output is a terminal, or under
/// `yoke run` on a terminal (YOKE_TERMINAL), which keeps the line separate from the other ranks' lines.
class Progress {
 public:
  Progress(bool is_rank_0, int64_t num_epochs, int64_t steps_per_epoch, int64_t first_step);
  /// Returns whether the line is due to be shown again.
  bool due() const;
  /// `step` counts from the beginning of the run. `figure` covers this epoch so far. `num_samples` is the number of
  /// samples of all ranks since this process started.
  void show(int64_t step, const std::string& figure, int64_t num_samples);

 private:
  using Clock = std::chrono::steady_clock;
  bool visible_;
  int64_t num_epochs_, steps_per_epoch_, first_step_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_ = start_;
};

}  // namespace yoke::train

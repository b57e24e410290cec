// yoke/train/run/detail/report.h -- the output of rank 0 while a training runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace yoke::train {

struct EpochRow {
  int64_t number = 0;                                   ///< The number of the epoch, from 1.
  std::vector<std::pair<std::string, double>> figures;  ///< In the order in which they were first logged.
  double samples_per_second = 0;                        ///< Samples per second of all ranks, during training only.
  std::chrono::duration<double> time{};                 ///< Duration of the whole epoch.
};

/// Writes the table of epochs to standard output and to `metrics.csv`.
class Report {
 public:
  /// Keeps the first `num_kept` epochs of an existing metrics.csv, which belong to the resumed run.
  Report(std::filesystem::path folder, int64_t num_kept);
  /// Errors  kUnavailable or as errno says, if metrics.csv cannot be written.
  void add(const EpochRow& row);

 private:
  std::filesystem::path path_;
  std::vector<std::string> lines_;  ///< Lines of the whole file, which is replaced at once.
  bool has_header_ = false;         ///< Whether the table's header was printed.
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

// yoke/train/run/detail/report.h -- what rank 0 shows and writes while a training runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace yoke::train {

struct EpochRow {
  int64_t number = 0;                                   ///< From 1.
  std::vector<std::pair<std::string, double>> figures;  ///< In the order in which they were logged first.
  double samples_per_second = 0;                        ///< Of all ranks, training only.
  std::chrono::duration<double> time{};                 ///< Of the whole epoch.
};

/// The table of epochs on standard output, and the same as `metrics.csv`.
class Report {
 public:
  /// Of an existing metrics.csv the rows of the first `num_kept` epochs stay: those of the run that is being resumed.
  Report(std::filesystem::path folder, int64_t num_kept);
  /// Errors  kUnavailable when metrics.csv cannot be written; as errno says.
  void add(const EpochRow& row);

 private:
  std::filesystem::path path_;
  std::vector<std::string> lines_;  ///< Of the whole file: it is replaced as one.
  bool has_header_ = false;         ///< Of the table.
};

/// One line that replaces itself, at most five times a second, where somebody can see it: on a terminal, or under
/// `yoke run` on one (YOKE_TERMINAL), which keeps it apart from the other ranks' lines.
class Progress {
 public:
  Progress(bool is_rank_0, int64_t num_epochs, int64_t steps_per_epoch, int64_t first_step);
  /// Whether it is time for another line.
  bool due() const;
  /// `step` counts from the first epoch's first; `figure` is this epoch's so far, and `num_samples` what this process
  /// has trained on since its beginning, on all ranks.
  void show(int64_t step, const std::string& figure, int64_t num_samples);

 private:
  using Clock = std::chrono::steady_clock;
  bool visible_;
  int64_t num_epochs_, steps_per_epoch_, first_step_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_ = start_;
};

}  // namespace yoke::train

// recipes/fashion_mnist/report.h -- what rank 0 shows and writes while the training runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>

namespace fashion_mnist {

struct Epoch {
  int64_t number = 0;  ///< From 1.
  double train_loss = 0;
  double test_loss = 0;
  double test_accuracy = 0;       ///< In [0, 1].
  double samples_per_second = 0;  ///< Of all ranks, training only.
  double seconds = 0;             ///< With the test.
};

/// The table of epochs on standard output, and the same as `metrics.csv`.
class Report {
 public:
  /// Keeps the first `num_kept` epochs of an existing metrics.csv: those of the run that is being resumed.
  Report(const std::filesystem::path& folder, int64_t num_kept);
  void add(const Epoch& epoch);

 private:
  std::ofstream csv_;
};

/// One line that replaces itself, at most five times a second, where somebody can see it: on a terminal, or under
/// `yoke run` on one (YOKE_TERMINAL), which keeps it apart from the other ranks' lines.
class Progress {
 public:
  Progress(bool visible, int64_t num_epochs, int64_t steps_per_epoch, int64_t samples_per_step, int64_t first_step);
  /// True when it is time for another line.
  bool due() const;
  /// `step` counts from the first epoch's first; `loss` is the mean of this epoch so far.
  void show(int64_t step, double loss);

 private:
  using Clock = std::chrono::steady_clock;
  bool visible_;
  int64_t num_epochs_, steps_per_epoch_, samples_per_step_, first_step_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_ = start_;
};

}  // namespace fashion_mnist

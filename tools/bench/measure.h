// tools/bench/measure.h -- times cases in turn, so that other load on the machine affects all of them equally.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "yoke/base/json.h"

namespace yoke::exercise {

/// A request of yoke/cli/bench.cpp. An empty list means the default values of the exercise.
struct Task {
  std::string name;
  double seconds = 10;    ///< The time for the repetitions of all cases together.
  bool is_quick = false;  ///< Few sizes and few repetitions.
  std::vector<int64_t> sizes, batch_sizes, workers;
  std::vector<std::string> dtypes, models;
  std::string data;

  /// Returns what the user gave, or else the values of a quick run, or else the usual ones.
  std::vector<int64_t> chosen(const std::vector<int64_t>& given, std::vector<int64_t> quick,
                              std::vector<int64_t> usual) const {
    return !given.empty() ? given : is_quick ? quick : usual;
  }
};

/// Prints what is being measured, in lines that the command shows on a terminal.
class Progress {
 public:
  explicit Progress(std::string name, bool is_shown = true) : name_(std::move(name)), is_shown_(is_shown) {}
  void show(const std::string& text);

 private:
  std::string name_;
  bool is_shown_;
  double next_ = 0;
};

struct Case {
  std::string name;                        ///< Such as "1024 on cpu"; shown as progress.
  std::function<void(int64_t count)> run;  ///< Does the work `count` times, and waits for the device once.
};

/// Returns a quantile with linear interpolation. REQUIRES: `values` is not empty.
double quantile(std::vector<double> values, double share);

/// The seconds of one repetition, in each round.
struct Times {
  std::vector<double> seconds;

  double median() const { return quantile(seconds, 0.5); }
};

/// Adds NAME_ms (the median), NAME_p10_ms, NAME_p90_ms and num_rounds to a row.
void add_times(Json& row, const std::string& name, const Times& times);

/// Returns one case's time divided by the other's for each round. Load that differs between rounds cancels out.
std::vector<double> ratios(const Times& one, const Times& other);
/// Adds speedup, speedup_p10 and speedup_p90: the time of `before` divided by that of `after`.
void add_speedup(Json& row, const Times& before, const Times& after);

double now_seconds();

struct Rounds {
  double seconds = 10;
  int64_t at_least = 3;
  std::function<double()> now = now_seconds;  ///< The clock, in seconds.
};

/// Runs each case for warm-up, chooses a number of repetitions that takes long enough for the clock, and then runs
/// rounds of all cases until the time is over. Each round begins with a different case.
std::vector<Times> measure(const std::vector<Case>& cases, const Rounds& rounds, Progress& progress);

/// Waits until the device has finished its work. Returns at once for the CPU.
void wait_for(c10::Device device);

/// Errors  kInvalidArgument: less than `num_bytes` of this machine's memory is free.
void check_memory(double num_bytes);

/// Each runs an exercise, and returns an object with `results` and the exercise's other members.
Json run_matmul(const Task& task, Progress& progress);
Json run_sync(const Task& task, Progress& progress);
Json run_two_devices(const Task& task, Progress& progress);
Json run_copies(const Task& task, Progress& progress);
Json run_all_reduce(const Task& task);  ///< Returns null on all ranks except rank 0.
Json run_batch(const Task& task, Progress& progress);
Json run_precision(const Task& task, Progress& progress);
Json run_loader(const Task& task, Progress& progress);

}  // namespace yoke::exercise

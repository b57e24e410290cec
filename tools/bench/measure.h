// tools/bench/measure.h -- times cases in turn, so that what else the machine does meets all of them alike.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace yoke::exercise {

using Json = nlohmann::ordered_json;

/// What the command asks for; see yoke/cli/bench.cpp. An empty list means the exercise's own.
struct Task {
  std::string name;
  double seconds = 10;    ///< For the repetitions of all cases together.
  bool is_quick = false;  ///< Few sizes and few repetitions.
  std::vector<int64_t> sizes, batch_sizes, workers;
  std::vector<std::string> dtypes, models;
  std::string data;
};

/// Says what is being measured: lines of standard output, which the command shows on a terminal.
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
  std::string name;                        ///< "1024 on cpu", for the progress.
  std::function<void(int64_t count)> run;  ///< Does the work `count` times, and waits for the device once.
};

/// With linear interpolation. REQUIRES: there are values.
double quantile(std::vector<double> values, double share);

/// The seconds of one piece of work, in each round.
struct Times {
  std::vector<double> seconds;

  double median() const { return quantile(seconds, 0.5); }
};

/// Adds NAME_ms (the median), NAME_p10_ms, NAME_p90_ms and num_rounds to a row.
void add_times(Json& row, const std::string& name, const Times& times);

/// One case's time divided by another's in each round, which no change between rounds can shift.
std::vector<double> ratios(const Times& one, const Times& other);
/// Adds speedup, speedup_p10 and speedup_p90: how many times as fast as `before` the case `after` is.
void add_speedup(Json& row, const Times& before, const Times& after);

struct Rounds {
  double seconds = 10;
  int64_t at_least = 3;
};

/// Runs each case for warm-up, chooses how often it is repeated in a round so that no case is too short for the clock,
/// and then takes rounds of all cases until the time is over. Each round begins with a different case.
std::vector<Times> measure(const std::vector<Case>& cases, const Rounds& rounds, Progress& progress);

double now_seconds();
/// Waits until the device has nothing left to do; returns at once for the CPU.
void wait_for(c10::Device device);

/// Errors  kInvalidArgument: fewer than `num_bytes` of this machine's memory are free.
void check_memory(double num_bytes);

/// The exercises. Each returns `results`, and what else belongs to its object.
Json run_matmul(const Task& task, Progress& progress);
Json run_sync(const Task& task, Progress& progress);
Json run_two_devices(const Task& task, Progress& progress);
Json run_copies(const Task& task, Progress& progress);
Json run_all_reduce(const Task& task);  ///< Null on all ranks but the first.
Json run_batch(const Task& task, Progress& progress);
Json run_precision(const Task& task, Progress& progress);
Json run_loader(const Task& task, Progress& progress);

}  // namespace yoke::exercise

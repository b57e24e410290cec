// yoke/scaling/schedule.h -- simulates a device that computes while its link communicates. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace yoke::scaling {

/// A piece of work of one of two queues. A queue does its tasks in their order, one at a time.
struct Task {
  double seconds = 0;                ///< If nothing slows it down.
  std::optional<size_t> after = {};  ///< It begins when this task of the other queue has ended.
};

struct ScheduleResult {
  double seconds = 0;          ///< When both queues are done.
  double waiting_seconds = 0;  ///< How long computing waited for communication, or was slowed down by it.
};

/// While a task of `link` runs, `compute` proceeds at the rate 1 - `contention`.
/// REQUIRES: 0 <= contention <= 1; the tasks do not wait for each other in a circle.
ScheduleResult simulate(std::span<const Task> compute, std::span<const Task> link, double contention);

}  // namespace yoke::scaling

// yoke/slurm/job/array_report.h -- what all tasks of an array used together. Pure.
#pragma once

#include "yoke/slurm/job/report.h"

namespace yoke::slurm {

/// The report on one task, or on tasks that wait together.
struct TaskReport {
  UseReport report;
  std::vector<Advice> advice;
};

/// A figure over the tasks that have run and ended, as far as it is known.
struct Spread {
  size_t num_tasks = 0;
  double least = 0, median = 0, most = 0;
  double ninety = 0;  ///< Nine tenths of the tasks have at most this.
  int64_t most_task = 0;
  std::optional<double> limit;               ///< That of the task with the most.
  std::vector<int64_t> ended_by_limit = {};  ///< Tasks that this limit ended, so that they need more than their figure.

  bool operator==(const Spread&) const = default;
};

struct ArrayReport {
  int64_t number = 0;
  std::string name, user, partition;
  int64_t num_tasks = 0;
  /// The tasks in each of Slurm's states, the most frequent state first.
  std::vector<std::pair<std::string, std::vector<int64_t>>> states;
  std::optional<Spread> seconds, queue_seconds, cpu_percent, gpu_percent;
  std::optional<Spread> memory_bytes;  ///< Without out_of_memory.
  /// Tasks of which a process was killed because the memory did not suffice. What was seen before says nothing about
  /// what they need.
  std::vector<int64_t> out_of_memory;
  struct SharedAdvice {
    Advice first;  ///< That of the first task.
    std::vector<int64_t> tasks;
  };
  std::vector<SharedAdvice> advice;  ///< One of each kind, in the order of tasks.
};

/// REQUIRES: `tasks` is not empty, and all are of one array.
ArrayReport make_array_report(const std::vector<TaskReport>& tasks);

nlohmann::ordered_json to_json(const ArrayReport& report);
std::string to_text(const ArrayReport& report, int64_t width);

}  // namespace yoke::slurm

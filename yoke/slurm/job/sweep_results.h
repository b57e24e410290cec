// yoke/slurm/job/sweep_results.h -- the results of a sweep: what became of its tasks, and their last metrics. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "yoke/base/table.h"
#include "yoke/base/tell.h"
#include "yoke/slurm/job/sweep_folder.h"

namespace yoke::slurm {

struct SweepResults {
  SweepFolder folder;
  SweepStates states;
  std::vector<std::vector<std::pair<std::string, double>>> metrics;  ///< The last value of each metric, by task.
};

/// The form of `--json`. Values that are no numbers are null.
nlohmann::ordered_json to_json(const SweepResults& results);

/// A row for each task. `missing`: what stands for a metric that a task lacks; empty: the table is for programs, and
/// metrics have all their digits.
Table to_table(const SweepResults& results, const std::string& missing);

/// Tells what a script or a user should know about the tasks: those that failed, and those that may still end.
void tell_ends(const SweepResults& results, const Tell& tell);

/// kUnavailable's status while a loop should wait for tasks, or for an answer of Slurm; that of the error if it is not
/// known whether all have ended; 1 if a task has failed; else 0.
int exit_status_of(const SweepResults& results);

}  // namespace yoke::slurm

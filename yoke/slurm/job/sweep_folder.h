// yoke/slurm/job/sweep_folder.h -- finds a sweep that was submitted, and what became of its tasks: their ends and their
// last metrics.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/table.h"
#include "yoke/base/tell.h"
#include "yoke/slurm/job/sweep_state.h"

namespace yoke::slurm {

/// A sweep in its folder, which has sweep.json and a folder for each task.
struct SweepFolder {
  std::filesystem::path path;  ///< Absolute.
  Sweep sweep;

  std::filesystem::path of_task(size_t task) const { return path / std::to_string(task); }
};
/// The absolute path of a sweep's folder, which may not exist.
std::filesystem::path sweep_path(const std::string& folder);
/// Finds the sweep that a user names by its folder or by the number of its job.
/// Errors  kNotFound: there is no sweep; those of parse_sweep() and of questions to Slurm.
SweepFolder open_sweep(const std::string& job_or_folder, const Environment& environment);

struct SweepStates {
  std::vector<SweepState> tasks;
  std::optional<Error> unanswered;  ///< Why Slurm could not tell what became of the tasks.
};
/// Reads the files "status", and asks Slurm: a task may wait again, and Slurm ends scripts before they write a status
/// (a time limit, a lack of memory, scancel).
SweepStates sweep_states(const SweepFolder& folder, const Environment& environment);

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

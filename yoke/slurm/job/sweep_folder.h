// yoke/slurm/job/sweep_folder.h -- finds a sweep that was submitted, and what became of its tasks.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
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

}  // namespace yoke::slurm

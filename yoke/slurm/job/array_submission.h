// yoke/slurm/job/array_submission.h -- submits a sweep as an array of jobs, and its failed tasks again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/tell.h"
#include "yoke/slurm/job/sweep_folder.h"

namespace yoke::slurm {

/// Whether an array may be in the queue although its submission failed: sbatch gave no answer, or no number.
bool may_be_queued(const Error& error);

/// The command that submits a sweep, for people.
std::string sbatch_line(const std::vector<std::string>& options);

struct ArrayRequest {
  std::vector<std::string> parameters;  ///< "lr=0.1,0.01"
  std::string parameter_file;           ///< CSV; empty: there is none.
  std::vector<std::string> argv;        ///< Words that name files here become absolute, because tasks run elsewhere.
};
struct ArrayTasks {
  std::vector<SweepTask> tasks;
  std::vector<std::string> unknown_placeholders;  ///< The names in braces that are no parameters.
};
/// Errors  those of parse_parameter(), parse_parameter_file(), plan_sweep(); kInvalidArgument: there is no parameter.
ArrayTasks plan_tasks(const ArrayRequest& request);

struct ArrayOptions {
  std::string folder;                ///< In which each task gets a folder.
  std::vector<std::string> options;  ///< Options of sbatch, as in lines of #SBATCH.
  std::optional<int64_t> at_once;
};
struct PlannedArray {
  Sweep sweep;
  std::string script, warning;       ///< `warning`: empty if there is none.
  std::vector<std::string> options;  ///< The words of sbatch.
};
/// Errors  kInvalidArgument: Slurm would replace a part of the folder's name; `options` have one that the sweep itself
/// sets, or another word; Slurm could not write --error.
PlannedArray plan_array(std::vector<SweepTask> tasks, const ArrayOptions& options, const std::vector<std::string>& argv,
                        const Environment& environment);

/// Errors  kInvalidArgument: arrays of this cluster have fewer tasks; kFailedPrecondition: the folder has another
/// sweep; those of max_array_size().
void check_array(const PlannedArray& array, const Environment& environment);

/// Makes the folders and files of the sweep, submits it, and notes its job in `array.sweep`. A sweep that Slurm has
/// refused leaves no files. Errors  those of submit(); as errno says.
void submit_array(PlannedArray& array, const Environment& environment, const Tell& tell);

struct RerunRequest {
  std::string sweep;                 ///< A job or a folder.
  std::vector<std::string> options;  ///< Further options of sbatch, as in lines of #SBATCH.
  std::optional<double> growth;      ///< As in RerunOptions.
  std::optional<int64_t> at_once;    ///< nullopt: as before.
};
struct PlannedReruns {
  SweepFolder folder;
  std::vector<SweepRerun> reruns;  ///< Without their numbers.
  std::optional<int64_t> at_once;
  std::string script;
  size_t num_tasks = 0, num_open = 0;  ///< Of the sweep; `num_open` have not ended.

  /// The words of sbatch for one of `reruns`.
  std::vector<std::string> options_of(const SweepRerun& rerun) const;
};
/// Errors  kInvalidArgument: the user names one task; those of open_sweep() and plan_rerun(); kNotFound,
/// kFailedPrecondition: the script of the sweep is not there, or runs the tasks elsewhere; those of questions to Slurm.
PlannedReruns plan_reruns(const RerunRequest& request, const Environment& environment);

struct RerunEnd {
  SweepRerun rerun;              ///< With its number if it was submitted.
  std::optional<Error> failure;  ///< Why it was not.
  bool is_tried = true;          ///< A Slurm that does not answer would keep each of them waiting.
};
/// Submits them one after the other, adds them to the sweep, and calls `at_end` after each. What tasks have printed
/// gets another name. Returns the failure that counts: one of which it is not known whether the array runs, if there is
/// one.
std::optional<Error> submit_reruns(PlannedReruns& plan, const Environment& environment, const Tell& tell,
                                   const std::function<void(const RerunEnd&)>& at_end);

/// The error after several arrays of which `num_failed` were not submitted, or of which that is not known. Pure.
Error failure_of_several(const Error& failure, size_t num_failed, size_t num_arrays);

}  // namespace yoke::slurm

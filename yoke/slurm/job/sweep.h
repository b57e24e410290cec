// yoke/slurm/job/sweep.h -- sweeps: a program once for each combination of parameters, as an array of jobs. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace yoke::slurm {

struct SweepParameter {
  std::string name;
  std::vector<std::string> values;
};
/// Parses "lr=0.1,0.01". Errors  kInvalidArgument.
SweepParameter parse_parameter(const std::string& text);

using SweepValues = std::vector<std::pair<std::string, std::string>>;  ///< Names and values of one task.
/// Reads CSV (RFC 4180): the first line has names, and each other one the values of a task. Values with commas, line
/// ends or blanks at their ends are in quotes. Lines without text are left out.
/// Errors  kInvalidArgument: a line has other cells than names, or an empty one without quotes; `name` is the file's.
std::vector<SweepValues> parse_parameter_file(std::string_view text, const std::string& name);

struct SweepTask {
  SweepValues parameters;
  std::vector<std::string> argv;

  bool operator==(const SweepTask&) const = default;
};
/// All combinations of `rows` (one row without values: a sweep without a file) and parameters; the last parameter
/// varies fastest. In `argv`, "{NAME}" becomes the value; braces in values stay. Errors  kInvalidArgument: a parameter
/// occurs twice, or in no word; over 100,000 combinations.
std::vector<SweepTask> plan_sweep(const std::vector<SweepParameter>& parameters, const std::vector<std::string>& argv,
                                  const std::vector<SweepValues>& rows = {SweepValues()});
/// The names in braces that are no parameters, such as a misspelt one.
std::vector<std::string> unknown_placeholders(const std::vector<SweepParameter>& parameters,
                                              const std::vector<std::string>& argv);

/// What to say if each task of the sweep gets several nodes or Slurm tasks (`options` of sbatch), but `argv` starts its
/// program once. Empty if there is nothing to say: a launcher such as srun or `yoke run` starts the program.
std::string unused_tasks_warning(const std::vector<std::string>& options, const std::vector<std::string>& argv);

/// The batch script of an array whose task N runs tasks[N] in the folder N below `folder`, and leaves its exit status
/// in the file "status" there (SweepStatus). It needs no yoke on the nodes.
std::string sweep_script(const std::vector<SweepTask>& tasks, const std::string& folder, const std::string& name);

/// Tasks of a sweep that were submitted again, as another array.
struct SweepRerun {
  std::string job;  ///< The number of the array.
  std::vector<int64_t> tasks;
  std::vector<std::string> options;

  bool operator==(const SweepRerun&) const = default;
};

/// The file sweep.json, by which `--collect` and `--rerun` know the tasks.
struct Sweep {
  std::vector<SweepTask> tasks;
  std::string job;                   ///< The number of the array; empty until sbatch has told it.
  std::string cluster;               ///< ClusterName, because clusters may share folders; empty if unknown.
  std::string folder;                ///< In which it was submitted.
  std::vector<std::string> options;  ///< The words of sbatch that the user gave.
  std::optional<int64_t> at_once;
  std::vector<SweepRerun> reruns;  ///< The last one that has a task counts for it.

  bool operator==(const Sweep&) const = default;
};
/// The numbers of the arrays that had the task, the present one last.
std::vector<std::string> jobs_of_task(const Sweep& sweep, int64_t task);
/// The words of sbatch with which the task was submitted last.
const std::vector<std::string>& options_of_task(const Sweep& sweep, int64_t task);
/// Bytes that are not UTF-8 are replaced.
std::string to_text(const Sweep& sweep);
constexpr size_t kMaxSweepBytes = 64 << 20;  ///< Readers refuse a larger file.
/// Errors  kDataLoss: the text is not such a file; `name` names it in the message.
Sweep parse_sweep(std::string_view text, const std::string& name);

}  // namespace yoke::slurm

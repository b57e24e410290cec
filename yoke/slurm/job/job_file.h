// yoke/slurm/job/job_file.h -- the jobs that users name by an array's range or by an output file. Pure.
#pragma once

#include "yoke/slurm/job/account.h"

namespace yoke::slurm {

/// Tasks of an array in the form of squeue and `yoke slurm ps`: "7_[1-2]", "7_[1,4-9%2]".
struct JobRange {
  int64_t number = 0;
  std::vector<int64_t> tasks;  ///< Sorted, each once.

  /// Whether `job` is one of these tasks, or tasks that wait together and contain one.
  bool contains(const Job& job) const;
  bool operator==(const JobRange&) const = default;
};
std::optional<JobRange> parse_job_range(std::string_view text);

/// A job, an array, or tasks of one, as users name them.
struct JobTarget {
  JobName name;
  std::optional<JobRange> range;  ///< These tasks of the array `name` alone.
  bool is_of_interval = false;    ///< The user wrote "5-7", so the number may be that of a task of another target.

  bool contains(const Job& job) const { return !range || range->contains(job); }
  bool operator==(const JobTarget&) const = default;
};
/// "4711_[1-3]", or nothing but the name.
std::string to_text(const JobTarget& target);
/// Reads a word of a command line: the forms of parse_job_name() and parse_job_range(), "5-7" (at most 1,000 jobs), and
/// several with commas, "5,7_[1,3]". Empty: it has another form.
std::vector<JobTarget> parse_job_targets(std::string_view text);
/// The same. Errors  kInvalidArgument: it names no job.
std::vector<JobTarget> require_job_targets(std::string_view text);

/// The jobs that a file's name may mean, the likeliest (job_of_file()) first; five at most. A number of a file is often
/// a date, a seed or a learning rate.
std::vector<JobName> jobs_in_name(std::string_view path);

enum class OutputMatch {
  kIsOutput,  ///< The job writes this file.
  kUnknown,   ///< Slurm does not tell any more, or the file has the right name in another folder.
  kOther      ///< The job writes other files.
};

/// The files that a job writes, as far as slurmctld or the accounts tell. A relative path is one in the job's folder.
struct JobOutputs {
  std::vector<std::string> paths;
  bool is_complete = false;  ///< Whether Slurm told them. Otherwise they are its defaults, which a script can change.
};
JobOutputs outputs_of(const std::optional<Job>& job, const std::vector<Account>& accounts);

/// REQUIRES: `file` and the paths of `outputs` are absolute, with links resolved.
OutputMatch match_output(const std::string& file, const JobOutputs& outputs);

}  // namespace yoke::slurm

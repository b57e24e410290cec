// yoke/slurm/job/log_files.h -- the files to which a job writes, as far as slurmctld, the accounts, the note of
// `yoke slurm submit` or a folder tell.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/slurm/job/job.h"

namespace yoke::slurm {

struct LogFile {
  std::string job_id, path;
  bool is_error = false;  ///< It has standard error alone.
  std::string rank = {};  ///< "rank 3" or "node 1": the file is that of one rank, or of the ranks of one node.

  bool operator==(const LogFile&) const = default;
};

/// The files of jobs that have started, with those of their ranks (`yoke slurm submit --file-per-rank`) that are there.
std::vector<LogFile> log_files_of(const std::vector<Job>& jobs);

/// The jobs in the accounts, if slurmctld has forgotten them: these have the folder and the line of submission, but not
/// the lines "#SBATCH --output" of the script. Errors  those of accounts_of().
std::vector<Job> recorded_jobs(const JobName& name, const Environment& environment);

/// The files that exist of those that `yoke slurm submit` has noted.
std::vector<LogFile> noted_log_files(const JobName& name, const Environment& environment);

/// The files in `folder` whose names have the job's number.
std::vector<LogFile> log_files_in(const std::filesystem::path& folder, const JobName& name);

}  // namespace yoke::slurm

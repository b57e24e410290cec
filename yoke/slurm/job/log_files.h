// yoke/slurm/job/log_files.h -- the files to which a job writes, as far as slurmctld, the accounts, the note of
// `yoke slurm submit` or a folder tell; and reading one from where it was left.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/slurm/job/job.h"

namespace yoke::slurm {

struct LogFile {
  std::string job_id, path;
  bool is_error = false;  ///< It has standard error alone.
  std::string rank = {};  ///< "rank 3" or "node 1": the file is that of one rank, or of the ranks of one node.
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

/// The file is open only while it is read, because an array may have thousands.
class LogReader {
 public:
  using Print = std::function<void(std::string_view line)>;

  explicit LogReader(std::string path) : path_(std::move(path)) {}

  bool has_begun() const { return has_begun_; }  ///< The file has been there.

  /// Prints complete lines that are new, at first those from the last `num_lines` on. A file that was written anew is
  /// new as a whole. Errors  those of open_regular_file().
  void print_new(std::optional<int64_t> num_lines, const Print& print);

  /// Prints what is left of a line without an end.
  void finish(const Print& print);

 private:
  std::string path_;
  bool has_begun_ = false;
  off_t at_ = 0;
  ino_t file_ = 0;
  std::string rest_;
};

}  // namespace yoke::slurm

// yoke/slurm/job/job_sampler.h -- samples what a job of Slurm uses on this node, while `yoke run` runs in it.
#pragma once

#include <sys/types.h>

#include <filesystem>

#include "yoke/base/environment.h"
#include "yoke/base/file.h"

namespace yoke::slurm {

/// Starts `yoke slurm sample --until-eof` beside this process if it is in a job of Slurm, else does nothing. A failure
/// to start it is ignored, because a job must not fail for its report.
class JobSampler {
 public:
  JobSampler(const std::filesystem::path& yoke, const Environment& environment);
  JobSampler(const JobSampler&) = delete;
  JobSampler& operator=(const JobSampler&) = delete;
  ~JobSampler();  ///< Lets it take and write the last sample; waits for at most a second.

 private:
  pid_t child_ = -1;
  UniqueFd end_;  ///< The child ends when this is closed, also if this process is killed.
};

}  // namespace yoke::slurm

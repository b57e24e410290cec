// yoke/slurm/job/resume_job.h -- runs the script of a job again, so that its program goes on from its newest
// checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/tell.h"
#include "yoke/slurm/job/job.h"

namespace yoke::slurm {

/// The jobs that a user names, each once; of "42_[1-3]" each task. Pure. Errors  those of require_job_targets().
std::vector<JobName> names_to_resume(const std::string& word);

struct PlannedResume {
  JobName name;
  std::optional<Job> job;       ///< slurmctld knows it, and puts it back into the queue.
  nlohmann::ordered_json note;  ///< Of a job that slurmctld has forgotten: its script is submitted again.
  std::string script;           ///< That script.
  std::string checkpoint;       ///< Where the program goes on, as a sentence.
  std::string success;  ///< A sentence about a job that has succeeded, since resuming it is rarely meant; or empty.
};
/// `folder`: where to look for checkpoints; empty: where the job started.
/// Errors  kNotFound: Slurm has forgotten the job, and there is no script; kPermissionDenied: the job or its script is
/// of another user; kFailedPrecondition: it has not ended, or runs again elsewhere; kInvalidArgument: it is an array
/// and no task is named; those of known_jobs().
PlannedResume plan_resume(const JobName& name, const std::string& folder, const Environment& environment);

/// What resume() would do, in lines.
std::string describe(const PlannedResume& plan);

/// Resumes the job, and returns what was done, in lines. Outputs that Slurm would truncate get another name before. Of
/// a job that was forgotten, the working folder becomes that of the job. Errors  those of ask() and submit(); as errno
/// says.
std::string resume(const PlannedResume& plan, const Environment& environment, const Tell& tell);

struct NewestCheckpoint {
  std::string path;
  std::filesystem::file_time_type time;
};
struct CheckpointSearch {
  std::optional<NewestCheckpoint> newest;
  bool is_complete = true;  ///< Whether all files were looked at.
};
/// Looks for the names that trainings give to checkpoints (yoke, PyTorch, Lightning, Hugging Face, DeepSpeed) among the
/// first `most_files` files below `folder`, five folders deep, because folders of jobs may be huge.
CheckpointSearch find_checkpoint(const std::string& folder, int64_t most_files);

/// The same as a sentence, for at most 20,000 files.
std::string checkpoint_text(const std::string& folder);

}  // namespace yoke::slurm

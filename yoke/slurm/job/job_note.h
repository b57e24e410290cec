// yoke/slurm/job/job_note.h -- submits scripts, and notes where they and their outputs are, for the time when Slurm has
// forgotten the jobs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/tell.h"
#include "yoke/slurm/job/submit.h"

namespace yoke::slurm {

/// Submits `script` in the working folder, keeps it there as slurm-JOB.sh (slurm-JOB.CLUSTER.sh if there is one
/// already, as of another cluster), and leaves a note of the job. The note is `note`, which has "name" and
/// "output_pattern", with "job", "cluster" (ClusterName; null: not known), "folder", "script" (null: it is not kept),
/// "output" and "submitted". Tells what sbatch says besides. Errors  those of submit().
nlohmann::ordered_json submit_with_note(nlohmann::ordered_json note, const std::string& script,
                                        const Environment& environment, const Tell& tell);

/// The note of the newest job of this number that this user submitted to the cluster of this host; nullopt if there is
/// none. If slurmctld and the accounts do not answer, the note may be of another job with the number.
std::optional<nlohmann::ordered_json> note_of(int64_t job, const Environment& environment);
/// The cluster of a note with this number that is of another cluster; empty if there is none.
std::string cluster_of_other_note(int64_t job, const Environment& environment);
/// The text under `key`; empty if there is none.
std::string note_text(const nlohmann::ordered_json& note, const char* key);

/// submit(), which also tells what sbatch says besides.
Submission submit_and_tell(const std::string& script, const Environment& environment,
                           const std::vector<std::string>& options, const Tell& tell);
/// The cluster of a job that was submitted here: what sbatch says, or else cluster_here().
std::string cluster_of(const Submission& submission, const Environment& environment);
/// The ClusterName of slurmctld; empty if it does not answer.
std::string cluster_here(const Environment& environment);
/// Clusters may share homes, and number their jobs alike. Errors  kFailedPrecondition: `what` is of `cluster`, and this
/// host is of another one.
void require_cluster(const std::string& cluster, const std::string& what, const Environment& environment);

}  // namespace yoke::slurm

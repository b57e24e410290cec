// yoke/slurm/job/job_note.h -- submits scripts, and notes where they and their outputs are, for the time when Slurm has
// forgotten the jobs; and the scripts that are submitted again then.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/tell.h"
#include "yoke/slurm/job/account.h"
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

// The functions below are pure.

/// The value of "#SBATCH --array=VALUE" in a script that `yoke slurm submit` wrote. nullopt: the job was no array.
std::optional<std::string> array_of_script(std::string_view script);

/// Whether the array `value`, such as "0-3,8%2", has the task. True also if the value has a form that is not read here.
bool may_have_task(const std::string& value, int64_t task);

/// The script of the array with that task alone.
std::string script_of_task(std::string_view script, int64_t task);

/// Whether a note of a job that was submitted at `submitted` (seconds since 1970) in `folder` is of the job in the
/// accounts. A newer job may have its number. True if the accounts do not tell.
bool is_note_of(int64_t submitted, std::string_view folder, const std::vector<Account>& accounts);

/// Whether a line of submission names no script, so that sbatch read it from its standard input and it is not known.
bool is_from_standard_input(std::string_view submit_line);

}  // namespace yoke::slurm

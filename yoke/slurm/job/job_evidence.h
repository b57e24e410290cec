// yoke/slurm/job/job_evidence.h -- collects what slurmctld, the accounts and the samples of this user know about jobs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/slurm/job/array_report.h"
#include "yoke/slurm/job/job_file.h"
#include "yoke/slurm/job/report.h"

namespace yoke::slurm {

/// What a user names: a job or an array, tasks of one, or a file whose name may mean several jobs.
struct ReportTarget {
  std::vector<JobName> names;
  std::optional<JobRange> range;
  std::string file;             ///< Empty: the user gave the number.
  bool is_of_interval = false;  ///< As in JobTarget.
};
/// Reads a word of a command line. Errors  kInvalidArgument: it names no job; kFailedPrecondition: it is of a sweep of
/// another cluster.
std::vector<ReportTarget> report_targets(const std::string& word, const Environment& environment);

/// The evidence for each job of a target; each task of an array is one. If Slurm does not tell whether a job writes the
/// file that the user gave, the evidence says so.
/// Errors  kNotFound: nobody knows the job, or it writes other files; those of known_jobs() and all_accounts_of().
std::vector<Evidence> evidence_of(const ReportTarget& target, const Environment& environment);

/// Whether the user named an array by its number alone, and it has several tasks. REQUIRES: `tasks` is not empty. Pure.
bool is_whole_array(const ReportTarget& target, const std::vector<TaskReport>& tasks);

}  // namespace yoke::slurm

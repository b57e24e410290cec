// yoke/slurm/job/query.h -- asks Slurm for jobs. Each function takes at most kAnswerTime for each program that it
// starts. Errors  those of ask() (programs.h), unless a comment says otherwise.
#pragma once

#include "yoke/base/environment.h"
#include "yoke/slurm/job/account.h"
#include "yoke/slurm/job/job.h"

namespace yoke::slurm {

struct QueueOptions {
  std::string user;               ///< Jobs of this user alone; empty: of all users.
  std::vector<std::string> jobs;  ///< These jobs alone.
};
/// The jobs that wait and run now, in squeue's order: tasks of an array that run are jobs of their own.
std::vector<Job> queued_jobs(const QueueOptions& options, const Environment& environment);

/// What slurmctld knows about a job: all tasks of an array, or the one named; all components of a heterogeneous job,
/// its leader first, or the one named. It forgets jobs minutes after their ends (MinJobAge); then the result is empty.
std::vector<Job> known_jobs(const JobName& name, const Environment& environment);

/// MaxArraySize: the indices of an array are less. nullopt if slurmctld does not tell.
std::optional<int64_t> max_array_size(const Environment& environment);

/// What the accounts have about the newest job of this name; empty if they have nothing. The accounts lag behind by
/// some seconds. Errors  also kFailedPrecondition if this Slurm keeps no accounts.
std::vector<Account> accounts_of(const JobName& name, const Environment& environment);
/// The same, with the jobs that had the number before.
JobAccounts all_accounts_of(const JobName& name, const Environment& environment);

}  // namespace yoke::slurm

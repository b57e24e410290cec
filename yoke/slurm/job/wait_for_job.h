// yoke/slurm/job/wait_for_job.h -- waits for the end of a job.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/tell.h"
#include "yoke/slurm/job/job.h"

namespace yoke::slurm {

/// What a job, or all tasks of an array, are about to do together.
struct JobProgress {
  std::string state;               ///< As state_text() says it.
  bool never_starts = false;       ///< All that has not ended waits for what cannot happen.
  std::optional<int> exit_status;  ///< All have ended: 0, or that of the task that failed first; 75 if Slurm ended it.
};
/// `id` is the number that the user knows. REQUIRES: `jobs` is not empty. Pure.
JobProgress progress_of(const std::string& id, const std::vector<Job>& jobs);

/// Pauses between questions to slurmctld, which grow from the first to the second length.
struct WaitPauses {
  std::chrono::milliseconds first{100}, longest{5000};
};
/// Waits until the job, or each task of an array, has ended for good, and tells what it waits for. Returns
/// JobProgress::exit_status. Errors  kFailedPrecondition: what is left of it can never start; kNotFound: neither
/// slurmctld nor the accounts know its end.
int wait_for_job(const std::string& id, const Environment& environment, const Tell& tell, WaitPauses pauses = {});

}  // namespace yoke::slurm

#include "yoke/slurm/job/wait_for_job.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/slurm/job/query.h"

namespace yoke::slurm {
namespace {

/// Asks slurmctld, and of a job that it has forgotten the accounts, as long as they have not got but an older job with
/// this number.
class JobWatch {
 public:
  JobWatch(const std::string& id, const Environment& environment)
      : id_(id), name_(require_job_name(id)), environment_(environment) {}

  /// Errors  kNotFound: nobody knows the job; those of known_jobs() and accounts_of().
  void ask() {
    auto known = known_jobs(name_, environment_);
    if (!known.empty() && !submitted_) submitted_ = known.front().submitted;
    if (known.empty()) {
      for (auto& account : accounts_of(name_, environment_)) {
        if (!(account.job.submitted < submitted_)) known.push_back(std::move(account.job));
      }
    }
    if (known.empty()) throw Error(ErrorCode::kNotFound, "neither slurmctld nor the accounts know job {}", id_);
    for (auto& job : known) jobs_[job.number] = std::move(job);
  }

  /// What was known at the last answers: slurmctld forgets tasks of an array while others still run.
  std::vector<Job> jobs() const {
    std::vector<Job> jobs;
    for (const auto& [_, job] : jobs_) jobs.push_back(job);
    return jobs;
  }

 private:
  const std::string& id_;
  const JobName name_;
  const Environment& environment_;
  std::map<int64_t, Job> jobs_;
  std::optional<Time> submitted_;
};

}  // namespace

JobProgress progress_of(const std::string& id, const std::vector<Job>& jobs) {
  const Job *running = nullptr, *failed = nullptr;
  bool never_starts = true;
  for (const auto& job : jobs) {
    if (!job.has_ended()) {
      if (running == nullptr || running->is_waiting()) running = &job;
      never_starts = never_starts && job.is_waiting() && slurm::never_starts(job.reason);
    } else if (job.state != "COMPLETED" && (failed == nullptr || job.ended < failed->ended)) {
      failed = &job;
    }
  }
  Job shown{.id = id, .state = running ? running->state : failed ? failed->state : "COMPLETED"};
  if (running != nullptr) shown.reason = running->reason;
  JobProgress progress{.state = state_text(shown), .never_starts = running != nullptr && never_starts};
  if (running != nullptr) return progress;
  progress.exit_status = failed == nullptr       ? 0
                         : failed->exit_code > 0 ? failed->exit_code
                                                 : yoke::exit_status(ErrorCode::kUnavailable);
  return progress;
}

int wait_for_job(const std::string& id, const Environment& environment, const Tell& tell, WaitPauses pauses) {
  JobWatch watch(id, environment);
  std::string last_state;
  bool is_unanswered = false;
  while (true) {
    try {
      watch.ask();
      is_unanswered = false;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kFailedPrecondition || error.code() == ErrorCode::kNotFound) {
        throw Error(ErrorCode::kNotFound, "{}; so the end of job {} is not known, and its output may tell",
                    error.what(), id);
      }
      if (!std::exchange(is_unanswered, true)) tell(Told::kNews, std::string(error.what()) + "; still waiting");
    }
    if (const auto jobs = watch.jobs(); !jobs.empty()) {
      const auto progress = progress_of(id, jobs);
      if (progress.never_starts) {
        throw Error(ErrorCode::kFailedPrecondition, "{}. It is still in the queue, and --wait does not wait for it",
                    progress.state);
      }
      if (std::exchange(last_state, progress.state) != progress.state) tell(Told::kOutput, progress.state + "\n");
      if (progress.exit_status) return *progress.exit_status;
    }
    std::this_thread::sleep_for(pauses.first);
    pauses.first = std::min(pauses.first * 2, pauses.longest);
  }
}

}  // namespace yoke::slurm

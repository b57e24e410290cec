// yoke/slurm/job/sweep_state.h -- what became of the tasks of a sweep, and which of them run again. Pure.
#pragma once

#include "yoke/slurm/job/job.h"
#include "yoke/slurm/job/sweep.h"

namespace yoke::slurm {

/// The file "status", which the script of a sweep writes at the end of a task.
struct SweepStatus {
  int64_t code = 0;     ///< The exit status of the program.
  std::string job;      ///< The number of the array; empty: the file does not tell.
  int64_t restart = 0;  ///< How often the task had been put back into the queue.

  bool operator==(const SweepStatus&) const = default;
};
/// Reads "3 4131 0". nullopt: it has no exit status.
std::optional<SweepStatus> parse_sweep_status(std::string_view text);

/// What is known about one task.
struct SweepEvidence {
  std::vector<std::string> jobs;      ///< jobs_of_task()
  std::optional<SweepStatus> status;  ///< Of the last run that ended by itself; perhaps not the last run.
  bool has_output = false;            ///< There is a file slurm.out.
  std::optional<Job> task;            ///< From slurmctld, or else the last run in the accounts.
  bool is_out_of_memory = false;      ///< By the accounts: also if only a step was.
  bool is_answered = false;           ///< slurmctld answered, so without `task` it does not know the task any more.
};

enum class SweepEnd { kDone, kFailed, kOutOfMemory, kTimeLimit, kNeverStarted, kNotEnded, kNotKnown };
struct SweepState {
  SweepEnd end = SweepEnd::kNotKnown;
  std::string
      text;  ///< "done", "failed (3)", "failed (TIMEOUT)", "never started (CANCELLED)", "not ended", "not known"

  bool has_failed() const;  ///< It ended, or can no longer start, and was not successful.
  bool operator==(const SweepState&) const = default;
};
/// A file "status" of an earlier run does not count: the task may wait or run again, or have ended in another way.
SweepState state_of(const SweepEvidence& evidence);

struct RerunOptions {
  std::vector<std::string> options;  ///< Further words for sbatch, which count more than those of the sweep.
  std::optional<double> growth;      ///< Tasks that ran out of memory or time get so many times as much of it.
};
/// The arrays to submit, without their numbers: all tasks that have failed, or of which nobody knows the end any more.
/// Tasks with equal options are in one array. REQUIRES: each state is one of Slurm's answer.
/// Errors  kInvalidArgument: a task ran out of memory or time, and its options have no limit that could grow.
std::vector<SweepRerun> plan_rerun(const Sweep& sweep, const std::vector<SweepState>& states,
                                   const RerunOptions& options);

}  // namespace yoke::slurm

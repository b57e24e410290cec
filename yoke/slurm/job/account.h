// yoke/slurm/job/account.h -- what sacct has recorded about a job: each of its runs, and what their steps used. Pure.
#pragma once

#include "yoke/slurm/job/job.h"
#include "yoke/slurm/words/options.h"

namespace yoke::slurm {

/// One run of a job. A job that was put back into the queue has several.
struct Account {
  Job job;
  /// The time in the queue before this run. Of a task of an array, since its submission: Slurm takes tasks behind the
  /// array's own limit (%N) for not eligible.
  std::optional<Seconds> planned;
  std::optional<int64_t> memory_bytes;     ///< That the run had on all nodes; before its start, that it asks for.
  std::optional<double> cpu_seconds;       ///< CPU time of all ended steps.
  std::optional<int64_t> peak_task_bytes;  ///< The most memory that a single task used (MaxRSS).
  /// The largest sum of the peaks of all tasks (TRESUsageInTot) of steps that ran at the same time. The peaks need not
  /// have been at the same time.
  std::optional<int64_t> peak_sum_bytes;
  bool is_out_of_memory = false;          ///< A step, or the job, was killed because its memory did not suffice.
  std::optional<int64_t> num_tasks;       ///< The most tasks of a step.
  std::optional<double> energy_joules;    ///< Of the nodes; nullopt where the site does not measure it.
  std::optional<double> gpu_percent;      ///< gres/gpuutil: the mean over the tasks of the largest step.
  std::optional<int64_t> gpu_peak_bytes;  ///< gres/gpumem: the most that a task used.
  std::string submit_line;
};

/// The columns that parse_sacct() reads, for `sacct --noheader --parsable2 --duplicates -o`.
inline constexpr const char* kSacctColumns =
    "JobID,JobIDRaw,State,ExitCode,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,NNodes,NTasks,AllocCPUS,ReqMem,"
    "MaxRSS,TotalCPU,ConsumedEnergyRaw,TRESUsageInTot,TRESUsageInAve,TRESUsageInMax,AllocTRES,ReqTRES,NodeList,"
    "Partition,User,Reason,WorkDir,JobName,SubmitLine";

/// Returns the runs in the order of their submissions. Lines that do not fit are left out.
std::vector<Account> parse_sacct(std::string_view text);

/// Slurm uses numbers again, after its state was lost and after MaxJobId, so one number may be that of several jobs.
struct JobAccounts {
  std::vector<Account> runs;    ///< Of the newest job, or of the tasks of the newest array.
  std::vector<Account> others;  ///< Of jobs that had the number before.
};
/// Tells the jobs in the accounts of one number apart by who submitted them and how. An earlier run of the same job
/// ended because it was put back into the queue. `accounts` are in the order of submissions.
JobAccounts tell_jobs_apart(std::vector<Account> accounts);

/// The same for accounts of one job that slurmctld knows: it may be newer than its accounts, and has counted its runs.
JobAccounts tell_jobs_apart(std::vector<Account> accounts, const Job& known);

/// The tasks of an array that were cancelled before they started, as one job. slurmctld drops such tasks from those
/// that wait together, and the accounts (`recorded`) keep all of them under one number. `known` are the jobs of the
/// array that slurmctld has, and those that have accounts of their own. nullopt: there are none.
std::optional<Job> cancelled_tasks(const Job& recorded, const std::vector<Job>& known);

/// The value of --output (`letter` 'o') or --error ('e') in a line of submission, empty if it is not there. Such a line
/// does not show where words with blanks end.
std::string output_option(std::string_view submit_line, char letter);
/// The same in the words after "sbatch".
std::string output_option(const std::vector<check::OptionWord>& words, char letter);

/// "10816K", "16000M", "4Gn" and "2Gc" (per node and per CPU, before Slurm 21.08), "1024" (bytes). nullopt for others.
std::optional<int64_t> parse_memory(std::string_view text, int64_t num_nodes = 1, int64_t num_cpus = 1);

}  // namespace yoke::slurm

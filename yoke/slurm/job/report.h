// yoke/slurm/job/report.h -- what a job used of what it had, and advice. Pure.
#pragma once

#include "yoke/slurm/job/account.h"
#include "yoke/slurm/job/samples.h"

namespace yoke::slurm {

/// All that could be learned about a job. An empty part was not available.
struct Evidence {
  std::optional<Job> job;           ///< From slurmctld, which knows restarts.
  std::vector<Account> accounts;    ///< The runs in sacct, the last run last (tell_jobs_apart()).
  std::vector<NodeSample> samples;  ///< merged_by_host().
  std::string why_no_accounts;      ///< Why `accounts` is empty.
  std::string why_no_job;           ///< Why there is neither `job` nor an account: slurmctld does not answer.
  std::vector<std::string> doubts;  ///< Sentences about whether this is the job that was meant.
  std::string reader;               ///< The user whose samples were looked for; empty: not known.
  std::optional<Time> now;
};

struct UseReport {
  Job job;
  bool is_known = true;  ///< If not, only samples are known: job has no state, time, nodes, CPUs and GPUs.
  bool is_running = false;
  bool is_out_of_memory = false;        ///< The job or one of its steps was killed because its memory did not suffice.
  std::optional<Seconds> queue_wait;    ///< Before the first start.
  std::optional<Seconds> restart_wait;  ///< Between runs, from the moment when the job was put back; also until now.
  std::optional<Seconds> earlier_runs;  ///< The length of the runs before the last.
  double sampled_seconds = 0;           ///< The longest sampling of a node.
  std::vector<NodeSample> nodes;
  std::optional<double> gpu_percent;                  ///< The mean over all GPUs that were seen.
  std::string gpu_source, cpu_source, energy_source;  ///< "yoke", "Slurm"; empty if not known.
  int64_t num_seen_gpus = 0, num_unused_gpus = 0;
  std::optional<int64_t> gpu_memory_peak_bytes, gpu_memory_total_bytes;  ///< Of the GPU that used most.
  /// Of all CPUs of the job; over 100 where it used more than it had.
  std::optional<double> cpu_percent;
  std::optional<int64_t> num_idle_nodes;                         ///< Nodes without any use of their CPUs.
  std::optional<int64_t> memory_peak_bytes, memory_limit_bytes;  ///< Of all nodes together.
  std::optional<int64_t> memory_with_files_peak_bytes;           ///< The same with cached files.
  bool is_memory_estimate = false;  ///< The peak is a sum of peaks that need not have been at the same time.
  bool is_memory_partial = false;   ///< The peak is of a part of the run, or of some of its nodes.
  std::optional<double> energy_joules;
  std::vector<std::string> unknown;  ///< Sentences about what is not known, and why.

  std::optional<double> time_percent() const;  ///< Elapsed time as a share of the limit.
};

/// The account of the present or last run; nullptr if the accounts do not have it yet.
const Account* account_of_run(const Evidence& evidence);

/// REQUIRES: `evidence` has a job, an account or a sample.
UseReport make_report(const Evidence& evidence);

struct Advice {
  bool is_serious = false;
  std::string kind;  ///< "gpus-unused", "gpu-low", "mig", "nodes-idle", "cpu-low", "one-core", "memory-out",
                     ///< "memory-low", "time-out", "time-low", "fewer-nodes", "restarts"
  std::string text;
};

/// The thresholds are those of jobstats (Princeton University), file config.py: GPU 15 and 25 %, CPU 65 and 80 %, time
/// 10 and 60 %, memory 70 %, and nothing about use in less than 300 s.
std::vector<Advice> advise(const UseReport& report);

nlohmann::ordered_json to_json(const UseReport& report, const std::vector<Advice>& advice);
std::string to_text(const UseReport& report, const std::vector<Advice>& advice, int64_t width);

}  // namespace yoke::slurm

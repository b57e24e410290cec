// yoke/slurm/job/job.h -- jobs as squeue, scontrol and sacct describe them, as values. Pure.
//
// The programs are asked with separators and for plain columns, because their JSON needs a plugin and has another
// layout in each release. Times are asked for as seconds since 1970 (SLURM_TIME_FORMAT=%s), so no time zone matters.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::slurm {

using Seconds = std::chrono::seconds;
using Time = std::chrono::system_clock::time_point;

/// Texts are empty, and numbers nullopt, where Slurm did not tell.
struct Job {
  /// As users write it: "123", a task of an array "120_3", tasks that wait "120_[4-9%2]", a component of a
  /// heterogeneous job "130+1".
  std::string id;
  int64_t number = 0;            ///< Each task of an array has a number of its own: SLURM_JOB_ID.
  std::optional<int64_t> array;  ///< The number that all tasks of an array share.
  std::string array_task;        ///< "3" or "4-9%2".
  std::string name, user, partition;
  std::string state;      ///< "PENDING", "RUNNING", "COMPLETED", ...
  std::string reason;     ///< Why it waits, or why it ended; empty if there is none.
  std::string node_list;  ///< In Slurm's form: "n[1-3]".
  std::string batch_host;
  int64_t num_nodes = 0, num_cpus = 0, num_gpus = 0;
  Seconds elapsed{0};            ///< Of the present or last run.
  std::optional<Seconds> limit;  ///< nullopt: unlimited, or not known.
  std::optional<Time> submitted, eligible, ended;
  std::optional<Time> started;  ///< Of a job that waits: the time that Slurm expects.
  int64_t num_restarts = 0;
  int exit_code = 0, signal = 0;
  std::string out, err;  ///< Paths, in which Slurm may have left patterns such as %N.
  std::string folder;    ///< Where it started.
  std::string command;   ///< The script; empty for scripts from standard input.

  bool is_waiting() const;  ///< In the queue, also again after a restart.
  bool has_ended() const;   ///< For good; false for unknown states.
  bool has_run() const;     ///< Since it was submitted or put back into the queue: it had nodes.
};

/// The columns that parse_squeue() reads, for `squeue --noheader -O`.
inline constexpr const char* kSqueueColumns =
    "JobArrayID:|,JobID:|,State:|,Reason:|,UserName:|,Partition:|,TimeUsed:|,TimeLimit:|,NumNodes:|,NumCPUs:|,"
    "tres-alloc:|,tres-per-node:|,tres-per-job:|,NodeList:|,StartTime:|,SubmitTime:|,RestartCnt:|,Name:|";
std::vector<Job> parse_squeue(std::string_view text);

/// Reads what `scontrol show job` prints. That form has a line for each path, so paths may contain blanks.
std::vector<Job> parse_scontrol(std::string_view text);

/// The form of `--json`. A start that lies in the future of a waiting job is what Slurm expects. Unknown values are
/// null.
nlohmann::ordered_json to_json(const Job& job);

/// "1-02:03:04", "02:03:04", "02:03", "00:01.648". nullopt for "UNLIMITED" and other texts. Fractions are dropped.
std::optional<Seconds> parse_elapsed(std::string_view text);
/// Seconds since 1970, or local time as "2026-11-23T16:05:21". nullopt for "N/A" and "Unknown".
std::optional<Time> parse_time(std::string_view text);
/// The amount of `name` in "cpu=4,mem=16000M,gres/gpu=4", as it is written there. nullopt if it is not in the list.
std::optional<std::string_view> find_tres(std::string_view list, std::string_view name);
/// The GPUs in such a list: "gres/gpu", or the sum of "gres/gpu:a100" and so on.
int64_t num_gpus_in(std::string_view list);
/// The GPUs in a request: "gres:gpu:2", "gres/gpu:a100:2", "gres/gpu=2", "gpu:2", or several with commas.
int64_t num_gpus_asked_in(std::string_view request);

/// The number of a job that a user named: "123", "123_4" (then `task` is set), "123+1" (then `component` is), "123.0"
/// (the step is ignored).
struct JobName {
  int64_t number = 0;
  std::optional<int64_t> task;
  std::optional<int64_t> component = {};  ///< Of a heterogeneous job. Its batch script is that of component 0.

  bool operator==(const JobName&) const = default;
};
std::optional<JobName> parse_job_name(std::string_view text);
/// The same for a word of a command line. Errors  kInvalidArgument: it names no job.
JobName require_job_name(std::string_view text);
std::string to_text(const JobName& name);
/// The job in the name of an output file, such as slurm-123.out, train-123_4.log or 123.err: the last number that
/// stands between separators. nullopt if there is none.
std::optional<JobName> job_of_file(std::string_view path);

/// What a reason means, and what to do next.
struct ReasonWords {
  std::string_view meaning, next;
};
/// For the reasons that squeue shows. The meaning is empty for a reason that is not known here.
ReasonWords explain_reason(std::string_view reason);
/// Whether a job that waits for this reason never starts unless somebody changes it.
bool never_starts(std::string_view reason);
/// "job 7 is PENDING: an administrator holds it (JobHeldAdmin); ask ...", or "job 7 is RUNNING".
std::string state_text(const Job& job);

/// The indices in Job::array_task: "3", "4-9,12%2", "0-8:2". Empty if the list is cut short, or of another form.
std::vector<int64_t> array_tasks_of(const Job& job);
/// The reverse: "3", "4-9,12", with ranges for neighbours. REQUIRES: `tasks` is sorted.
std::string to_task_list(const std::vector<int64_t>& tasks);
/// Job::id for people: a long list of tasks is cut, as "120_[1,4,6,...]".
std::string short_id(const Job& job);

/// Replaces the patterns of file names (%j, %A, %a, %N, %x, %u, ...) that Slurm left in a path. A relative path becomes
/// one in Job::folder. The patterns of tasks (%t, %n, %s) get the values of the batch script. Of an array without a
/// task, and of a job without a node, %a and %N stay. An empty path stays empty.
std::string expand_path(std::string_view pattern, const Job& job);

}  // namespace yoke::slurm

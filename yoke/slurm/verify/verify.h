// yoke/slurm/verify/verify.h -- what the tasks of a step really have, and what is wrong with it. Pure functions of what
// the processes read about themselves.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/cpu_set.h"
#include "yoke/base/table.h"

namespace yoke::slurm {

/// A GPU that a task may open.
struct GpuSeen {
  std::string pci_bus_id, name;
  std::optional<int64_t> numa_node = {};
  CpuSet cpus;          ///< The CPUs close to it; empty if not known.
  std::string network;  ///< The nearest network card, "mlx5_0 (PIX)"; empty if not known.
  std::string trouble;  ///< "lost", "no answer": why programs cannot use it; empty if it answers.

  bool operator==(const GpuSeen&) const = default;
};

struct NodeCpus {
  int64_t number = 0;
  CpuSet cpus;

  bool operator==(const NodeCpus&) const = default;
};

/// The bandwidth at which the threads of a task copy memory, in bytes per second (read and written).
struct MemoryMeasured {
  int64_t own = 0;        ///< On its own CPUs.
  int64_t num_own = 0;    ///< Threads, one for each CPU.
  int64_t whole = 0;      ///< On all CPUs that its control group allows.
  int64_t num_whole = 0;  ///< 0 if there are no other CPUs.

  bool operator==(const MemoryMeasured&) const = default;
};

/// What a process of a step read about itself.
struct TaskSeen {
  int64_t rank = 0, local_rank = 0, local_world_size = 1;
  std::string host;
  CpuSet cpus;                         ///< sched_getaffinity()
  CpuSet memory_nodes;                 ///< Mems_allowed_list
  std::string memory_policy;           ///< "default", "bind 0", "prefer 1", "interleave 0-1"
  CpuSet memory_policy_nodes;          ///< Of `memory_policy`.
  std::vector<NodeCpus> numa = {};     ///< The machine's.
  std::vector<GpuSeen> openable = {};  ///< The GPUs that the control group and the permissions of files allow.
  std::vector<int64_t> visible;        ///< Positions in `openable`, in the order in which a program counts them.
  std::vector<std::string> variables;  ///< "CUDA_VISIBLE_DEVICES=0"
  std::string hidden_why;              ///< What these variables hide, and why; empty if nothing.
  std::string driver_why;              ///< Why drivers show no or fewer GPUs; empty if all answer.
  /// The GPUs that Slurm gave to this step on this node (SLURM_STEP_GPUS). nullopt: not known, or nobody asked.
  std::optional<int64_t> gpus_given = {};
  std::string cgroup;
  std::optional<int64_t> cpus_asked = {};  ///< SLURM_CPUS_PER_TASK
  std::optional<MemoryMeasured> measured = {};

  /// The GPU that a program takes by its local rank, or the only one; nullptr if there is none.
  const GpuSeen* device() const;
  /// Whether a variable names a GPU, so that a program would look for one.
  bool names_devices() const;
  /// Whether its devices are its own to use: Slurm gave them, a variable names them, or no Slurm says whose they are.
  bool counts_devices() const { return gpus_given != 0 || names_devices(); }
  bool operator==(const TaskSeen&) const = default;
};

struct VerifyFinding {
  std::vector<int64_t> ranks;
  std::string text;    ///< What is wrong, and where.
  std::string advice;  ///< What to do.
};

/// Errors  from_json: nlohmann::json::exception if `json` is not a task.
nlohmann::ordered_json to_json(const TaskSeen& task);
TaskSeen task_from_json(const nlohmann::json& json);

/// The description of a task as lines that are short enough for srun, which mixes parts of longer lines of several
/// tasks. Pure.
std::string task_lines(const TaskSeen& task);

/// Finds the tasks that are described in the output of a step, ordered by rank. Other lines are left out. Pure.
/// Errors  kDataLoss: a description is damaged or has no end.
std::vector<TaskSeen> tasks_in(std::string_view output);

/// What the user asked of srun, as far as findings depend on it.
struct StepWish {
  std::string cpu_bind;    ///< The value of --cpu-bind; empty if it was not given.
  bool wants_gpu = false;  ///< Whether options or the job ask for GPUs.
};

/// Returns what is wrong; empty if every rank has CPUs, memory and a device of its own that are close to each other, or
/// needs no device: Slurm gave it none, no variable names one, and `wish` has none.
std::vector<VerifyFinding> judge(const std::vector<TaskSeen>& tasks, const StepWish& wish = {});

/// Sentences about what is not wrong, but easily misunderstood: GPUs that the ranks can open without having got them.
std::vector<std::string> notes(const std::vector<TaskSeen>& tasks);

/// "each of the 2 ranks has CPUs and a device of its own". REQUIRES: nothing is wrong.
std::string verdict_text(const std::vector<TaskSeen>& tasks);

Table to_table(const std::vector<TaskSeen>& tasks);

/// "rank 3", "ranks 0-3", "ranks 0-1, 4"
std::string ranks_text(const std::vector<int64_t>& ranks);

}  // namespace yoke::slurm

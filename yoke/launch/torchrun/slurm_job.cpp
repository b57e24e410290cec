#include "yoke/launch/torchrun/slurm_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/hostlist.h"
#include "yoke/base/text.h"
#include "yoke/contract/variables.h"
#include "yoke/launch/torchrun/spec.h"
#include "yoke/launch/torchrun/values.h"

namespace yoke::launch {
namespace {

/// Step numbers from here on are not steps of srun: the batch script, the interactive step of salloc, and others.
constexpr int64_t kFirstSpecialStep = 0xfffffff0;
/// After the end of one launcher, the others have the grace time of their ranks, and this, before srun ends them.
constexpr int64_t kWaitSeconds = 30;

/// Variables of a job that describe its tasks. srun would take them for the step of launchers, too, which has one task
/// on each node with all of its CPUs and GPUs.
constexpr const char* kOfTasks[] = {"SLURM_CPUS_PER_TASK",
                                    "SRUN_CPUS_PER_TASK",
                                    "SLURM_NTASKS",
                                    "SLURM_NPROCS",
                                    "SLURM_NTASKS_PER_NODE",
                                    "SLURM_NTASKS_PER_CORE",
                                    "SLURM_NTASKS_PER_SOCKET",
                                    "SLURM_NTASKS_PER_GPU",
                                    "SLURM_NTASKS_PER_TRES",
                                    "SLURM_TASKS_PER_NODE",
                                    "SLURM_GPUS",
                                    "SLURM_GPUS_PER_NODE",
                                    "SLURM_GPUS_PER_SOCKET",
                                    "SLURM_GPUS_PER_TASK",
                                    "SLURM_TRES_PER_TASK",
                                    "SLURM_GPU_BIND",
                                    "SLURM_TRES_BIND",
                                    "SLURM_CPU_BIND",
                                    "SLURM_MEM_BIND",
                                    "SLURM_DISTRIBUTION",
                                    "SLURM_EXACT",
                                    "SLURM_MULTI_PROG",
                                    "SLURM_ARBITRARY_NODELIST"};

/// srun reads this variable as --overlap. Versions before 20.11 ignore it, and their steps overlap always.
constexpr const char* kOverlap = "SLURM_OVERLAP";

std::string outer(std::string_view name) { return variable::kOuterPrefix + std::string(name); }

/// Whether srun started this process as a task. A batch script and the shell of salloc are not tasks.
bool is_in_step(const Environment& environment) {
  const auto step = environment.find("SLURM_STEP_ID");
  if (!step) return false;
  const auto number = parse_int(*step);
  return !number || *number < kFirstSpecialStep;
}

/// Whether this process runs in a batch script. The shell of salloc and tasks of srun do not count.
bool is_in_batch_script(const Environment& environment) {
  return environment.find("ENVIRONMENT") == "BATCH" && !is_in_step(environment);
}

/// The number of components of a heterogeneous job; 0 if the job is not one.
int64_t num_components(const Environment& environment) {
  const auto size = environment.find_int("SLURM_HET_SIZE");
  return size.value_or(environment.find_int("SLURM_PACK_SIZE").value_or(0));  // the name before Slurm 20.02
}

/// Whether mpirun, Flux or a launcher of ranks started this process inside the job.
bool is_of_another_launcher(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "FLUX_TASK_RANK", "TORCHELASTIC_RUN_ID"}) {
    if (environment.contains(name)) return true;
  }
  // srun sets PMI's variables too, where Slurm's MpiDefault says so; then the numbers agree.
  const auto size = environment.find("PMI_SIZE");
  return size && size != environment.find("SLURM_STEP_NUM_TASKS");
}

/// The number of devices in the first variable that names any; nullopt if none is set.
std::optional<int64_t> num_visible(const Environment& environment) {
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}) {
    const auto list = environment.find(name);
    if (!list) continue;
    return list->empty() ? 0 : static_cast<int64_t>(split_at_commas(*list).size());
  }
  return std::nullopt;
}

/// The number of tasks that the user asked for on this node; nullopt if the user named none.
std::optional<int64_t> tasks_asked_for(const Environment& environment) {
  const bool is_ours = environment.contains(outer("SLURM_TASKS_PER_NODE"));
  if (!is_ours && is_in_step(environment)) return std::nullopt;
  const auto find = [&](const char* name) { return environment.find(is_ours ? outer(name) : name); };
  if (!find("SLURM_NTASKS") && !find("SLURM_NTASKS_PER_NODE")) return std::nullopt;
  const auto counts = expand_counts(find("SLURM_TASKS_PER_NODE").value_or(""));
  const auto node = environment.find_int("SLURM_NODEID").value_or(0);
  if (node < 0 || node >= static_cast<int64_t>(counts.size())) return std::nullopt;
  return counts[static_cast<size_t>(node)];
}

/// The number in "1", "a100:1", "gres/gpu:a100=2" or "gres:gpu:1,cpu:2"; 0 if there is none for GPUs.
int64_t gpus_in(std::string_view text, bool has_names) {
  for (const auto item : split(text, ',')) {
    if (has_names && item.find("gpu") == item.npos) continue;
    const auto end = item.find_last_of(":=");
    return parse_int(end == item.npos ? item : item.substr(end + 1)).value_or(0);
  }
  return 0;
}

/// All GPUs of a job that asked for GPUs of each task. In such a job a step of one task on each node would get the GPUs
/// of one task. 0 if the job did not ask so.
int64_t gpus_of_all_tasks(const Environment& environment) {
  auto each = gpus_in(environment.value_or("SLURM_GPUS_PER_TASK", ""), false);
  if (each == 0) each = gpus_in(environment.value_or("SLURM_TRES_PER_TASK", ""), true);
  const auto tasks = expand_counts(environment.value_or("SLURM_TASKS_PER_NODE", ""));
  return each * std::accumulate(tasks.begin(), tasks.end(), int64_t{0});
}

}  // namespace

bool says_where(const RunOptions& options) {
  return options.standalone || options.node_rank || !options.nnodes.empty() || !options.hosts.empty() ||
         !options.hostfile.empty() || !options.allocation.empty() || !options.rdzv_endpoint.empty();
}

std::optional<RanksOfNode> ranks_of_slurm_node(const Environment& environment) {
  if (!environment.contains("SLURM_JOB_ID") || is_of_another_launcher(environment)) return std::nullopt;
  const auto given = environment.find_int("SLURM_GPUS_ON_NODE").value_or(0);
  const auto gpus = std::min(given, num_visible(environment).value_or(given));
  if (gpus > 0) return RanksOfNode{gpus, "one for each GPU of this node"};
  if (const auto tasks = tasks_asked_for(environment); tasks && *tasks > 0) {
    return RanksOfNode{*tasks, "one for each task of this node"};
  }
  return RanksOfNode{1, is_in_step(environment) ? "because the step has no GPUs and one task here"
                                                : "because the job asks for no GPUs and no number of tasks"};
}

std::optional<SlurmStep> slurm_step_for(const RunOptions& options, const Environment& environment) {
  const auto job = environment.find("SLURM_JOB_ID");
  if (!job || says_where(options) || is_in_step(environment) || is_of_another_launcher(environment)) {
    return std::nullopt;
  }
  if (const auto count = num_components(environment); count > 1) {
    throw Error(ErrorCode::kFailedPrecondition,
                "job {} is heterogeneous: it has {} components, and a step that does not name them has only the first; "
                "start `srun --het-group=0-{} --ntasks-per-node=1 yoke run ...`, or add --standalone to run on this "
                "machine alone",
                printable(*job), count, count - 1);
  }
  const auto list = environment.find("SLURM_JOB_NODELIST");
  auto number = environment.find_int("SLURM_JOB_NUM_NODES");
  if (!number) number = environment.find_int("SLURM_NNODES");
  const bool is_on_node = environment.contains("SLURMD_NODENAME");
  // Signals of scancel and of `sbatch --signal` go to steps and not to the processes of the batch script.
  const bool needs_step = !is_on_node || is_in_batch_script(environment);
  if (number == 1 && !needs_step) return std::nullopt;
  constexpr const char* kInstead = "add --standalone to run on this machine alone, or name the nodes by --hosts";
  if (!list || list->empty()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "SLURM_JOB_ID is {}, but SLURM_JOB_NODELIST is not set, so the nodes of the job are unknown; {}", *job,
                kInstead);
  }
  SlurmStep step{.job_id = *job, .nodes = expand_hostlist(*list), .srun = {}, .environment = environment};
  const auto num_nodes = static_cast<int64_t>(step.nodes.size());
  if (number.value_or(num_nodes) != num_nodes) {
    throw Error(ErrorCode::kFailedPrecondition, "SLURM_JOB_NODELIST names {} nodes, but SLURM_JOB_NUM_NODES is {}; {}",
                num_nodes, *number, kInstead);
  }
  if (num_nodes == 1 && !needs_step) return std::nullopt;
  step.may_run_here = num_nodes == 1 && is_on_node;
  const auto wait = std::chrono::ceil<std::chrono::seconds>(grace_of(options, environment)).count() + kWaitSeconds;
  step.srun = {"srun",
               fmt::format("--nodes={}", num_nodes),
               fmt::format("--ntasks={}", num_nodes),
               "--ntasks-per-node=1",
               "--cpu-bind=none",                // yoke binds the ranks
               "--mpi=none",                     // a launcher is not a rank of MPI
               "--export=ALL",                   // also in jobs of `sbatch --export=NONE`
               "--input=0",                      // rank 0 reads the input
               "--kill-on-bad-exit=0",           // launchers end by themselves, all with the status of the job,
               fmt::format("--wait={}", wait)};  // and if one cannot, this ends it
  if (options.spares > 0) {                      // the step goes on without a node, whose launcher may be lost
    step.srun.back() = "--wait=0";
    step.srun.emplace_back("--no-kill");
  }
  if (const auto gpus = gpus_of_all_tasks(environment); gpus > 0) step.srun.push_back(fmt::format("--gpus={}", gpus));
  for (const char* name : kOfTasks) {
    if (const auto value = environment.find(name)) {
      step.environment.set(outer(name), *value);
      step.environment.erase(name);
    }
  }
  if (num_nodes == 1) {  // a script on one node may run several programs at once, which would wait for each other
    step.environment.set(outer(kOverlap), environment.value_or(kOverlap, ""));
    step.environment.set(kOverlap, "1");
  }
  return step;
}

void restore_slurm_variables(Environment& environment) {
  for (const char* name : kOfTasks) {
    const auto value = environment.find(outer(name));
    if (!value) continue;
    if (!environment.contains(name)) environment.set(name, *value);
    environment.erase(outer(name));
  }
  if (const auto overlap = environment.find(outer(kOverlap))) {
    overlap->empty() ? environment.erase(kOverlap) : environment.set(kOverlap, *overlap);
    environment.erase(outer(kOverlap));
  }
}

std::optional<std::string> describe_slurm(const Environment& environment, int64_t num_nodes,
                                          const std::optional<RanksOfNode>& ranks) {
  const auto job = environment.find("SLURM_JOB_ID");
  if (!job || (num_nodes == 1 && !ranks)) return std::nullopt;
  const auto step = is_in_step(environment) ? "." + environment.value_or("SLURM_STEP_ID", "") : "";
  const auto list = environment.find(is_in_step(environment) ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST");
  auto text = fmt::format("job {}{} of Slurm: {}{}", printable(*job), printable(step), counted(num_nodes, "node"),
                          list ? ", " + printable(*list) : "");
  if (ranks) text += fmt::format("; {} here, {}", counted(ranks->num_ranks, "rank"), ranks->because);
  return text;
}

}  // namespace yoke::launch

#include "yoke/contract/rank_env.h"

#include <fmt/format.h>

#include "yoke/base/error.h"
#include "yoke/base/hostlist.h"
#include "yoke/contract/variables.h"

namespace yoke {
namespace {

constexpr uint16_t kTorchDefaultPort = 29'500;

[[noreturn]] void fail(const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "rank environment: {}", why);
}

int64_t required(const Environment& environment, const char* name, const char* because) {
  if (const auto value = environment.find_int(name)) return *value;
  fail(fmt::format("{} is set but {} is not", because, name));
}

uint16_t to_port(int64_t port, const char* name) {
  if (port < 1 || port > 65'535) fail(fmt::format("{}={} is not a port", name, port));
  return static_cast<uint16_t>(port);
}

/// Returns a port below the ephemeral range (32768). It is the same for every rank of a job, and differs between jobs.
uint16_t port_of_job(uint64_t job, uint64_t step) { return static_cast<uint16_t>(12'000 + (job * 31 + step) % 18'000); }

/// FNV-1a. (std::hash may differ between processes and machines.)
uint64_t stable_hash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

/// Returns the number of tasks of node `node`. `text` is SLURM_STEP_TASKS_PER_NODE, written like "2(x3),1".
int64_t tasks_of_node(const std::string& text, int64_t node) {
  const auto counts = expand_counts(text);
  if (node >= 0 && node < static_cast<int64_t>(counts.size())) return counts[static_cast<size_t>(node)];
  fail(fmt::format("SLURM_STEP_TASKS_PER_NODE='{}' does not cover this node", text));
}

RankEnv from_torchrun(const Environment& environment) {
  RankEnv result;
  result.source = RankSource::kTorchrun;
  result.rank = required(environment, "RANK", "WORLD_SIZE");
  result.world_size = required(environment, "WORLD_SIZE", "RANK");
  result.local_world_size = environment.find_int("LOCAL_WORLD_SIZE").value_or(result.world_size);
  result.local_rank = environment.find_int("LOCAL_RANK").value_or(result.rank);
  result.node_rank = environment.find_int("GROUP_RANK").value_or(0);
  result.num_nodes = environment.find_int("GROUP_WORLD_SIZE").value_or(1);
  result.restart_count = environment.find_int("TORCHELASTIC_RESTART_COUNT").value_or(0);
  result.max_restarts = environment.find_int("TORCHELASTIC_MAX_RESTARTS").value_or(0);
  result.run_id = environment.value_or("TORCHELASTIC_RUN_ID", "none");
  result.role = environment.value_or("ROLE_NAME", "default");
  result.role_rank = environment.find_int("ROLE_RANK");
  result.role_world_size = environment.find_int("ROLE_WORLD_SIZE");
  result.agent_serves_store = environment.value_or("TORCHELASTIC_USE_AGENT_STORE", "False") == "True";
  if (const auto fd = environment.find_int(variable::kMasterListenFd); fd && result.rank == 0) {
    result.master_listen_fd = static_cast<int>(*fd);
  }
  if (result.world_size > 1) {
    for (const auto* name : {"MASTER_ADDR", "MASTER_PORT"}) {
      if (!environment.contains(name)) fail(fmt::format("RANK is set but {} is not", name));
    }
  }
  return result;
}

RankEnv from_slurm(const Environment& environment) {
  // A batch script has SLURM_PROCID too, but is not a rank. Only srun sets SLURM_STEP_NUM_TASKS.
  RankEnv result;
  result.source = RankSource::kSlurm;
  constexpr const char* kBecause = "SLURM_STEP_NUM_TASKS";
  result.rank = required(environment, "SLURM_PROCID", kBecause);
  result.world_size = required(environment, kBecause, kBecause);
  result.local_rank = required(environment, "SLURM_LOCALID", kBecause);
  result.node_rank = environment.find_int("SLURM_NODEID").value_or(0);
  result.num_nodes = environment.find_int("SLURM_STEP_NUM_NODES").value_or(1);
  const auto tasks = environment.find("SLURM_STEP_TASKS_PER_NODE");
  result.local_world_size = tasks ? tasks_of_node(*tasks, result.node_rank) : result.world_size;
  if (result.num_nodes > 1) {
    const auto nodes = environment.find("SLURM_STEP_NODELIST");
    if (!nodes) fail("SLURM_STEP_NUM_NODES is set but SLURM_STEP_NODELIST is not");
    result.master_addr = expand_hostlist(*nodes).front();
  }
  const auto job = static_cast<uint64_t>(environment.find_int("SLURM_JOB_ID").value_or(0));
  const auto step = static_cast<uint64_t>(environment.find_int("SLURM_STEP_ID").value_or(0));
  result.master_port = port_of_job(job, step);
  result.run_id = fmt::format("{}.{}", job, step);
  return result;
}

RankEnv from_open_mpi(const Environment& environment) {
  RankEnv result;
  result.source = RankSource::kOpenMpi;
  constexpr const char* kBecause = "OMPI_COMM_WORLD_RANK";
  result.rank = required(environment, kBecause, kBecause);
  result.world_size = required(environment, "OMPI_COMM_WORLD_SIZE", kBecause);
  result.local_rank = required(environment, "OMPI_COMM_WORLD_LOCAL_RANK", kBecause);
  result.local_world_size = required(environment, "OMPI_COMM_WORLD_LOCAL_SIZE", kBecause);
  for (const auto* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}) {
    if (const auto job = environment.find(name)) {
      result.run_id = *job;
      result.master_port = port_of_job(stable_hash(*job), 0);
      break;
    }
  }
  return result;
}

RankEnv from_pmi(const Environment& environment) {
  RankEnv result;
  result.source = RankSource::kPmi;
  result.rank = required(environment, "PMI_RANK", "PMI_SIZE");
  result.world_size = required(environment, "PMI_SIZE", "PMI_RANK");
  result.local_rank = environment.find_int("MPI_LOCALRANKID").value_or(result.rank);
  result.local_world_size = environment.find_int("MPI_LOCALNRANKS").value_or(result.world_size);
  result.master_port = kTorchDefaultPort;  // hydra gives jobs no id, so of two jobs on one host one needs MASTER_PORT
  return result;
}

RankEnv from_flux(const Environment& environment) {
  RankEnv result;
  result.source = RankSource::kFlux;
  constexpr const char* kBecause = "FLUX_TASK_RANK";
  result.rank = required(environment, kBecause, kBecause);
  result.world_size = required(environment, "FLUX_JOB_SIZE", kBecause);
  result.local_rank = required(environment, "FLUX_TASK_LOCAL_ID", kBecause);
  result.num_nodes = environment.find_int("FLUX_JOB_NNODES").value_or(1);
  // Flux does not say how many tasks this node has, so we assume the same number on each.
  if (result.num_nodes < 1 || result.world_size < 1 || result.world_size % result.num_nodes != 0) {
    fail(
        fmt::format("FLUX_JOB_SIZE={} tasks are not the same number on each of FLUX_JOB_NNODES={} nodes; give the "
                    "same number to each, or start `yoke run` once on each node",
                    result.world_size, result.num_nodes));
  }
  result.local_world_size = result.world_size / result.num_nodes;
  result.node_rank = result.rank / result.local_world_size;
  result.run_id = environment.value_or("FLUX_JOB_ID", "none");
  result.master_port = port_of_job(stable_hash(result.run_id), 0);
  return result;
}

/// Whether hydra (MPICH, Intel MPI) started this rank inside a Slurm job: its own srun step has one task on each node,
/// which is not a rank. Under `srun --mpi=pmi2` both kinds of variables agree.
bool is_from_hydra(const Environment& environment) {
  const auto size = environment.find("PMI_SIZE"), tasks = environment.find("SLURM_STEP_NUM_TASKS");
  return size && tasks && (*size != *tasks || environment.find("PMI_RANK") != environment.find("SLURM_PROCID"));
}

/// The first node of the Slurm job in which mpirun or Flux started the ranks; empty if there is no such job.
std::string first_node_of_slurm(const Environment& environment) {
  const auto nodes = environment.find("SLURM_JOB_NODELIST");
  return nodes && !nodes->empty() ? expand_hostlist(*nodes).front() : "";
}

void check(const RankEnv& rank) {
  const auto in_range = [](int64_t index, int64_t size) { return size >= 1 && index >= 0 && index < size; };
  if (!in_range(rank.rank, rank.world_size)) {
    fail(fmt::format("rank {} is not in a world of {}", rank.rank, rank.world_size));
  }
  if (!in_range(rank.local_rank, rank.local_world_size) || rank.local_world_size > rank.world_size) {
    fail(fmt::format("local rank {} of {} does not fit a world of {}", rank.local_rank, rank.local_world_size,
                     rank.world_size));
  }
}

}  // namespace

RankEnv read_rank_env(const Environment& environment) {
  RankEnv result;
  if (environment.contains("RANK") || environment.contains("WORLD_SIZE")) {
    result = from_torchrun(environment);
  } else if (environment.contains("FLUX_TASK_RANK")) {
    result = from_flux(environment);
  } else if (environment.contains("OMPI_COMM_WORLD_RANK")) {  // mpirun's daemons are in a step of srun
    result = from_open_mpi(environment);
  } else if (environment.contains("SLURM_STEP_NUM_TASKS") && !is_from_hydra(environment)) {
    result = from_slurm(environment);
  } else if (environment.contains("PMI_RANK") || environment.contains("PMI_SIZE")) {
    result = from_pmi(environment);
  }
  check(result);
  if (result.source != RankSource::kNone) {
    if (const auto address = environment.find("MASTER_ADDR")) {
      result.master_addr = *address;
    } else if (result.source != RankSource::kSlurm && result.local_world_size != result.world_size) {
      result.master_addr = first_node_of_slurm(environment);
      if (result.master_addr.empty())
        fail("the ranks are on several hosts and MASTER_ADDR is not set; set it to the host of rank 0");
    }
    if (const auto port = environment.find_int("MASTER_PORT")) result.master_port = to_port(*port, "MASTER_PORT");
  }
  return result;
}

void write_rank_env(const RankEnv& rank, Environment& environment) {
  const auto set = [&](const char* name, const auto& value) { environment.set(name, fmt::format("{}", value)); };
  set("RANK", rank.rank);
  set("LOCAL_RANK", rank.local_rank);
  set("WORLD_SIZE", rank.world_size);
  set("LOCAL_WORLD_SIZE", rank.local_world_size);
  set("GROUP_RANK", rank.node_rank);
  set("GROUP_WORLD_SIZE", rank.num_nodes);
  set("ROLE_RANK", rank.role_rank.value_or(rank.rank));
  set("ROLE_NAME", rank.role);
  set("ROLE_WORLD_SIZE", rank.role_world_size.value_or(rank.world_size));
  set("MASTER_ADDR", rank.master_addr);
  set("MASTER_PORT", rank.master_port);
  set("TORCHELASTIC_RESTART_COUNT", rank.restart_count);
  set("TORCHELASTIC_MAX_RESTARTS", rank.max_restarts);
  set("TORCHELASTIC_RUN_ID", rank.run_id);
  set("TORCHELASTIC_USE_AGENT_STORE", rank.agent_serves_store ? "True" : "False");
  if (rank.master_listen_fd) {
    set(variable::kMasterListenFd, *rank.master_listen_fd);
  } else {
    environment.erase(variable::kMasterListenFd);
  }
}

}  // namespace yoke

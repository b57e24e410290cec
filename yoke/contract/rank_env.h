// yoke/contract/rank_env.h -- the contract between a launcher and the programs that it starts as ranks. It is the only
// connection between the machine half and the training half. docs/rank-environment.md describes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "yoke/base/environment.h"

namespace yoke {

/// Who started this rank.
enum class RankSource { kNone, kTorchrun, kSlurm, kOpenMpi, kPmi, kFlux };

/// The place of one process among the ranks of a job. The default is a job with one rank, started by hand.
struct RankEnv {
  RankSource source = RankSource::kNone;
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t local_rank = 0;        ///< Index on this node, which selects the device.
  int64_t local_world_size = 1;  ///< Ranks on this node.
  int64_t node_rank = 0;         ///< torchrun's GROUP_RANK.
  int64_t num_nodes = 1;

  std::string master_addr = "127.0.0.1";  ///< The address of the ranks' TCPStore.
  uint16_t master_port = 0;
  /// Whether the launcher serves the TCPStore. If so, every rank is a client (TORCHELASTIC_USE_AGENT_STORE).
  bool agent_serves_store = false;
  /// Rank 0 only: a socket, inherited from `yoke run`, that is bound to master_port and does not listen yet. It
  /// prevents other processes from taking the port before rank 0 uses it (YOKE_MASTER_LISTEN_FD).
  std::optional<int> master_listen_fd;

  int64_t restart_count = 0;
  int64_t max_restarts = 0;
  std::string run_id = "none";
  std::string role = "default";  ///< torchrun's role, which may differ between nodes.
  /// The number of this rank among the ranks of its role, and the number of these. Unset: all ranks have one role.
  std::optional<int64_t> role_rank = {}, role_world_size = {};
};

/// Reads the first of these that is set: torchrun's and yoke's variables, Flux, Open MPI's mpirun, an srun step, PMI
/// (MPICH, Intel MPI). If none is set, there is one rank. MASTER_ADDR and MASTER_PORT always apply if they are set;
/// otherwise the store is on the first node of the Slurm step (of the job, under mpirun and Flux), and its port is
/// derived from the job's id.
/// Errors  kInvalidArgument with the name of a variable that is missing, not a number, or contradicts another one.
RankEnv read_rank_env(const Environment& environment);

/// Sets torchrun's variables for a rank, and removes YOKE_MASTER_LISTEN_FD if this rank has no such socket.
void write_rank_env(const RankEnv& rank, Environment& environment);

}  // namespace yoke

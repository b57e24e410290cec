// yoke/base/rank_env.h -- the contract between whatever starts ranks and whatever they run: the only thing that the
// machine half and the training half share. docs/rank-environment.md is its page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "yoke/base/environment.h"

namespace yoke {

/// Who started this rank.
enum class RankSource { kNone, kTorchrun, kSlurm, kOpenMpi, kPmi };

/// Where one process stands among the ranks of a job. The default is a job of one rank, started by hand.
struct RankEnv {
  RankSource source = RankSource::kNone;
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t local_rank = 0;        ///< Index on this node; picks the device.
  int64_t local_world_size = 1;  ///< Ranks on this node.
  int64_t node_rank = 0;         ///< torchrun's GROUP_RANK.
  int64_t num_nodes = 1;

  std::string master_addr = "127.0.0.1";  ///< Where the ranks' store is served.
  uint16_t master_port = 0;
  /// True: the launcher serves the store and every rank is a client (TORCHELASTIC_USE_AGENT_STORE).
  bool agent_serves_store = false;
  /// Rank 0 only: a socket bound to master_port and not yet listening, inherited from `yoke run`, so that no other
  /// process can take the port between its choice and its use (YOKE_MASTER_LISTEN_FD).
  std::optional<int> master_listen_fd;

  int64_t restart_count = 0;
  int64_t max_restarts = 0;
  std::string run_id = "none";
  std::string role = "default";  ///< torchrun's; there is one in a job.
};

/// Reads, in this order: torchrun's and yoke's variables, an srun step, Open MPI's mpirun, PMI (MPICH, Intel MPI).
/// Without any of them: one rank. MASTER_ADDR and MASTER_PORT are always obeyed; otherwise a Slurm step's first node,
/// and a port derived from the job's id.
/// Errors  kInvalidArgument: a variable is missing, is no number, or contradicts another; it is named.
RankEnv read_rank_env(const Environment& environment);

/// Sets torchrun's variables for a rank, and clears YOKE_MASTER_LISTEN_FD where this rank has none.
void write_rank_env(const RankEnv& rank, Environment& environment);

}  // namespace yoke

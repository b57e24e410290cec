// yoke/launch/plan/plan.h -- converts the spec of a launch into a plan for each process. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// The place of this node among the nodes of the job, for one start of the job.
struct NodePlace {
  int64_t node_rank = 0;
  int64_t num_nodes = 1;
  int64_t first_rank = 0;       ///< The first rank of this node. The node's ranks are consecutive.
  int64_t world_size = 1;       ///< The number of ranks on all nodes.
  int64_t first_role_rank = 0;  ///< Like first_rank and world_size, but among the nodes that have this node's role.
  int64_t role_world_size = 1;
  int64_t restart_count = 0;
  std::string master_addr = "127.0.0.1";
  uint16_t master_port = 0;         ///< The port of the ranks' TCPStore. Node 0 has bound it already.
  bool agent_serves_store = false;  ///< Whether the launcher of node 0 serves the store, instead of rank 0.
  bool is_elastic = false;          ///< Whether another start of the job may have more or fewer nodes.
  bool has_spares = false;          ///< Whether another host may take this node's place while the others run.
  /// If the node takes a lost one's place while the others run: the number of the replacement that its first rank is,
  /// from 1. Its other ranks have the next ones.
  int64_t first_replacement = 0;

  /// Whether the job has exactly one rank in this and every later start. This decides the form of its output.
  bool is_of_one_rank() const { return world_size == 1 && !is_elastic; }
};

/// The facts about this node and this start that the plan depends on.
struct NodeFacts {
  Binding binding;  ///< From bind_here(): the CPUs and the number of threads of each rank.
  NodePlace place;
  int terminal_group = 0;      ///< The launcher's process group, if it has a controlling terminal; else 0.
  std::string host;            ///< The name of this node, for prefixes.
  bool on_a_terminal = false;  ///< The ranks' output appears on a terminal. YOKE_TERMINAL tells the ranks.
  bool is_screen_here = true;  ///< False if the output of ranks is sent to another host.
  std::string log_folder;      ///< The folder for output in this attempt; empty: no output files.
  std::string error_folder;    ///< The folder for error files without a log folder, and for kept states; empty: none.
};

/// The destination of one output stream of a rank.
struct StreamPlan {
  enum class To { kLauncher, kNowhere };
  To to = To::kLauncher;
  std::string file;          ///< The output also goes into this file; empty: no file.
  bool is_own = false;       ///< Whether the rank inherits the launcher's descriptor: a terminal, pipe or file.
  bool is_filtered = false;  ///< Whether the filters of LogOptions apply to the stream's lines.

  bool is_piped() const { return to == To::kLauncher && !is_own; }
  bool operator==(const StreamPlan&) const = default;
};

/// The complete description of a process. Supervisor and guardian add nothing to it.
struct RankPlan {
  int64_t rank = 0;  ///< The rank's number in the job.
  int64_t local_rank = 0;
  std::vector<std::string> argv;
  std::vector<std::string> environment;  ///< "NAME=value"
  std::vector<int> inherited_fds;
  bool inherits_stdin = false;  ///< If false, standard input is /dev/null.
  /// The launcher's process group, if the process joins it and shares its terminal; 0: the process gets its own
  /// session.
  int process_group = 0;
  CpuSet cpus;          ///< CPUs that the process may use; empty: those of the launcher.
  CpuSet memory_nodes;  ///< NUMA nodes preferred for its memory; empty: those of the launcher.
  StreamPlan out, err;
  std::string prefix;      ///< The prefix of its lines on the screen.
  std::string error_file;  ///< The file for the rank's report of a failure (yoke/contract/error_file.h); empty: none.
  std::string progress_file;  ///< The file for its steps (yoke/contract/progress.h); empty: none.
  std::string state_file;     ///< The begin of the names of the files for its states (read_kept_step); empty: none.
  bool holds_master_port = false;  ///< Whether it inherits the socket that is bound to MASTER_PORT.
  bool is_store = false;           ///< Whether it is not a rank, but the process that serves the ranks' TCPStore.
  int64_t store_limit_bytes = 0;   ///< How much the store may keep, if it is the store.
};

/// Returns the plans of all ranks of this node.
/// Errors  kInvalidArgument: no program, no rank, or fewer visible GPUs than virtual_local_rank needs.
std::vector<RankPlan> plan(const LaunchSpec& spec, const NodeFacts& facts);

/// Whether a process of the launcher serves the ranks' TCPStore, so that it outlives every rank. A single rank serves
/// it itself, which saves a process, and so does rank 0 with torchrun's TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1.
bool launcher_serves_store(const LaunchSpec& spec, int64_t world_size, bool has_several_nodes);

/// Returns the prefix of the lines of a rank at `place`, on the node that calls itself `host`.
std::string prefix_of(const LaunchSpec& spec, const NodePlace& place, int64_t local_rank, const std::string& host);

/// Reads this machine's topology and divides its CPUs among the ranks, as `spec` says. Not pure.
/// Errors  kInvalidArgument if the CPU masks do not fit the ranks or the machine.
Binding bind_here(const LaunchSpec& spec);

}  // namespace yoke::launch

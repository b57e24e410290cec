// yoke/launch/plan/plan.h -- turns the spec of a launch into a plan for each process. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// The place of this node among the nodes of the job, in one start of the job.
struct Place {
  int64_t node_rank = 0;
  int64_t num_nodes = 1;
  int64_t first_rank = 0;  ///< The first rank of this node, whose ranks are consecutive.
  int64_t world_size = 1;  ///< The number of ranks on all nodes.
  int64_t restart_count = 0;
  std::string master_addr = "127.0.0.1";
  uint16_t master_port = 0;         ///< The port of the ranks' TCPStore; the node with rank 0 has bound it already.
  bool agent_serves_store = false;  ///< A program on the node of rank 0 (yoke-store) serves the store, not rank 0.
  bool is_elastic = false;          ///< Another start of the job may have more or fewer nodes.

  /// Whether the job has one rank in this and every later start, which decides the form of its output.
  bool is_of_one_rank() const { return world_size == 1 && !is_elastic; }
};

/// The facts about this node and this start of the job that the plan depends on.
struct NodeFacts {
  Binding binding;  ///< From bind_here(): CPUs and threads of each rank.
  Place place;
  int terminal_group = 0;      ///< The launcher's process group, if it has a controlling terminal; else 0.
  bool on_a_terminal = false;  ///< The output of ranks is shown on a terminal; YOKE_TERMINAL tells them so.
  bool is_screen_here = true;  ///< False: the output of ranks is sent to another host.
  std::string log_folder;      ///< The folder for output in this attempt; empty: output is not written to files.
  std::string error_folder;    ///< The folder for error files if there is no log folder; empty: there is none.
};

/// Where one output stream of a rank goes.
struct StreamPlan {
  enum class To { kLauncher, kNowhere };
  To to = To::kLauncher;
  std::string file;          ///< The output also goes into this file; empty: no file.
  bool is_own = false;       ///< The rank inherits the launcher's descriptor: a terminal, pipe or file.
  bool is_filtered = false;  ///< The filters of LogOptions apply to its lines.

  bool is_piped() const { return to == To::kLauncher && !is_own; }
  bool operator==(const StreamPlan&) const = default;
};

/// The complete description of a process; supervisor and guardian do not add to it.
struct RankPlan {
  int64_t rank = 0;  ///< Its number among all ranks of the job.
  int64_t local_rank = 0;
  std::vector<std::string> argv;
  std::vector<std::string> environment;  ///< "NAME=value"
  std::vector<int> inherited_fds;
  bool inherits_stdin = false;  ///< False: its standard input is /dev/null.
  /// The launcher's process group, if the process joins it (and so shares its terminal); 0: it gets its own session.
  int process_group = 0;
  CpuSet cpus;          ///< CPUs that it may use; empty: those of the launcher.
  CpuSet memory_nodes;  ///< NUMA nodes preferred for its memory; empty: those of the launcher.
  StreamPlan out, err;
  std::string prefix;      ///< The prefix of its lines on the screen.
  std::string error_file;  ///< The file for its report if it fails (yoke/base/error_file.h); empty: it writes none.
  bool holds_master_port = false;  ///< It inherits the socket that is bound to MASTER_PORT.
  bool is_store = false;           ///< It is not a rank, but the program that serves the ranks' TCPStore.
};

/// The plans of all ranks of this node.
/// Errors  kInvalidArgument: no program, no rank, or fewer visible GPUs than virtual_local_rank needs.
std::vector<RankPlan> plan(const LaunchSpec& spec, const NodeFacts& facts);

/// The prefix of the lines of a rank at `place`.
std::string prefix_of(const LaunchSpec& spec, const Place& place, int64_t local_rank);

/// The plan of the program that serves the ranks' TCPStore on this node. REQUIRES: spec.store_program is not empty.
RankPlan plan_store(const LaunchSpec& spec);

/// Reads the topology of this machine and divides its CPUs among the ranks, as `spec` says. Not pure.
/// Errors  kInvalidArgument: the CPU masks do not fit the ranks or the machine.
Binding bind_here(const LaunchSpec& spec);

}  // namespace yoke::launch

// yoke/launch/plan/plan.h -- from what the user said to what each process gets. Pure: touches nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// Where this node stands among the nodes of the job, in one start of it.
struct Place {
  int64_t node_rank = 0;
  int64_t num_nodes = 1;
  int64_t first_rank = 0;  ///< Of this node's ranks, which follow each other.
  int64_t world_size = 1;  ///< Ranks of all nodes.
  int64_t restart_count = 0;
  std::string master_addr = "127.0.0.1";
  uint16_t master_port = 0;         ///< Already bound by the node with rank 0.
  bool agent_serves_store = false;  ///< A program beside rank 0 (yoke-store) does, not rank 0 itself.
  bool is_elastic = false;          ///< Another start of the job may have more or fewer nodes.

  /// The job never has another rank: decided once, so that its output stays what it was when nodes come and go.
  bool is_of_one_rank() const { return world_size == 1 && !is_elastic; }
};

/// What must be known about this node, and about this start of the job.
struct NodeFacts {
  Binding binding;  ///< bind_here(): CPUs and threads of each rank.
  Place place;
  int terminal_group = 0;      ///< The launcher's process group, if it has a controlling terminal; else 0.
  bool on_a_terminal = false;  ///< Where what ranks print is shown is a terminal; they are told (YOKE_TERMINAL).
  bool is_screen_here = true;  ///< False: what ranks print is sent to another host.
  std::string log_folder;      ///< Of this attempt; empty: no files of what ranks print.
  std::string error_folder;    ///< For the ranks' error files; empty: none. Not used where there is a log folder.
};

/// Where what a rank prints goes.
struct StreamPlan {
  enum class To { kLauncher, kNowhere };
  To to = To::kLauncher;
  std::string file;          ///< And into this file; empty: none.
  bool is_own = false;       ///< The launcher's descriptor itself: terminal, pipe or file.
  bool is_filtered = false;  ///< Its lines are looked at for those that LogOptions' filters want.

  bool is_piped() const { return to == To::kLauncher && !is_own; }
  bool operator==(const StreamPlan&) const = default;
};

/// One process, completely: supervisor and guardian add nothing to it.
struct RankPlan {
  int64_t rank = 0;  ///< Among all ranks of the job.
  int64_t local_rank = 0;
  std::vector<std::string> argv;
  std::vector<std::string> environment;  ///< "NAME=value"
  std::vector<int> inherited_fds;
  bool inherits_stdin = false;  ///< Else /dev/null.
  int process_group = 0;        ///< The launcher's, in its session, and so with its terminal; 0: a session of its own.
  CpuSet cpus;                  ///< That it may use; empty: as the launcher.
  CpuSet memory_nodes;          ///< To be preferred for its memory; empty: as the launcher.
  StreamPlan out, err;
  std::string prefix;              ///< Of its lines.
  std::string error_file;          ///< Where it may say why it failed (yoke/base/error_file.h); empty: nowhere.
  bool holds_master_port = false;  ///< Inherits the bound socket of MASTER_PORT.
  bool is_store = false;           ///< No rank: the program that serves the ranks' store.
};

/// Errors  kInvalidArgument: no program, or no rank, or fewer visible GPUs than virtual_local_rank takes.
std::vector<RankPlan> plan(const LaunchSpec& spec, const NodeFacts& facts);

/// What each line of a rank at `place` begins with.
std::string prefix_of(const LaunchSpec& spec, const Place& place, int64_t local_rank);

/// The program that serves the ranks' store on this node. REQUIRES: spec.store_program is not empty.
RankPlan plan_store(const LaunchSpec& spec);

/// Looks at this machine and divides it among the ranks, as `spec` wants it.
/// Errors  kInvalidArgument: masks that do not fit.
Binding bind_here(const LaunchSpec& spec);

}  // namespace yoke::launch

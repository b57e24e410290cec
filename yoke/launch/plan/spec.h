// yoke/launch/plan/spec.h -- what to launch, as the user said it.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/terminal.h"
#include "yoke/launch/plan/bind.h"
#include "yoke/launch/plan/streams.h"

namespace yoke::launch {

/// Which ranks' lines begin with "[rank] ". One rank alone has no prefix and writes straight to the launcher's output.
enum class Prefix { kAllRanks, kAllButRankZero, kNone };

/// Files of what ranks print, laid out as torchrun does: FOLDER/RUN-ID_XXXXXX/attempt_N/LOCAL-RANK/stdout.log.
struct LogOptions {
  std::string folder;                    ///< Empty: one of its own below TMPDIR, if files are asked for.
  StreamChoice redirects;                ///< Into files and not on the screen.
  StreamChoice tee;                      ///< Into files and on the screen.
  std::set<int64_t> shown_local_ranks;   ///< On the screen; empty: all.
  std::vector<std::string> out_filters;  ///< Lines with one of these, of ranks in `tee`, into filtered_stdout.log.
  std::vector<std::string> err_filters;
  std::string prefix_template;  ///< With ${role_name}, ${rank}, ${local_rank}; empty: as `Prefix` says.
};

/// What one node is to start; nodes.h has what they are to know of each other. A wrapper of argv (a container) will be
/// a field here.
struct LaunchSpec {
  std::string name = "yoke run";            ///< Who speaks in messages.
  std::vector<std::string> argv;            ///< Program and arguments; `${local_rank}` in them becomes the local rank.
  Environment environment;                  ///< What every rank starts from.
  int64_t num_ranks = 1;                    ///< Of this node.
  std::chrono::milliseconds grace{10'000};  ///< Between asking ranks to stop and killing them.
  int64_t max_restarts = 0;                 ///< Of all ranks together, after one failed.
  std::string run_id = "none";
  std::string role = "default";
  std::string master_addr = "127.0.0.1";  ///< An address of this node.
  std::optional<uint16_t> master_port;    ///< Unset: a free port.
  BindMode bind;                          ///< Which CPUs each rank may use.
  /// Each rank sees one GPU, which is its device 0, and has local rank 0.
  bool virtual_local_rank = false;
  std::vector<int> stop_signals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};  ///< End the job; SIGUSR1 and 2 are passed on.
  Prefix prefix = Prefix::kAllRanks;
  LogOptions logs;
  ColorMode color = ColorMode::kAuto;  ///< Of prefixes.
  bool heads_terminal = false;         ///< For an agent: the head's standard output is a terminal.
  bool quiet = false;                  ///< Say nothing but why the job failed.
  bool preload = false;                ///< Fork ranks from the program, stopped before its main (preload.h).
  std::string store_program;       ///< yoke-store, which serves the ranks' store of several nodes; empty: rank 0 does.
  std::vector<int> inherited_fds;  ///< Kept open in every rank, under the same numbers.
};

}  // namespace yoke::launch

// yoke/launch/plan/spec.h -- the description of a launch, made from the options of `yoke run`.
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
#include "yoke/launch/plan/restart_limit.h"
#include "yoke/launch/plan/streams.h"

namespace yoke::launch {

/// Which ranks' lines begin with "[rank] ". A single rank has no prefix and writes directly to the launcher's output.
enum class Prefix { kAllRanks, kAllButRankZero, kNone };

/// Files for the output of ranks, in torchrun's layout: FOLDER/RUN-ID_XXXXXX/attempt_N/LOCAL-RANK/stdout.log.
struct LogOptions {
  std::string folder;                    ///< Empty: a new folder in TMPDIR, if files are wanted.
  StreamChoice redirects;                ///< Streams that are written only to files.
  StreamChoice tee;                      ///< Streams that are written to files and to the screen.
  std::set<int64_t> shown_local_ranks;   ///< The local ranks that are shown on the screen; empty: all.
  std::vector<std::string> out_filters;  ///< Lines of `tee` streams with one of these go into filtered_stdout.log.
  std::vector<std::string> err_filters;
  /// May contain ${role_name}, ${rank}, ${local_rank}, ${hostname}; empty: as `Prefix` says.
  std::string prefix_template;
};

/// What `--preload` loads of a Python program.
struct PythonLoading {
  std::string loader;   ///< The path of yoke_preload.py.
  std::string modules;  ///< Names with commas between them; empty: what the script imports at its beginning.
};

/// The description of the processes that one node starts. nodes.h describes how the nodes of a job find each other.
struct LaunchSpec {
  std::string name = "yoke run";            ///< The beginning of messages.
  std::vector<std::string> argv;            ///< Program and arguments; `${local_rank}` in them becomes the local rank.
  Environment environment;                  ///< The ranks' environment, to which each rank's variables are added.
  int64_t num_ranks = 1;                    ///< The number of ranks on this node.
  std::chrono::milliseconds grace{10'000};  ///< The time between asking ranks to stop and killing them.
  /// How long a rank may wait in the kernel without a signal reaching it before the job fails; zero: for ever.
  std::chrono::milliseconds kernel_sleep_limit{0};
  RestartLimit restarts;       ///< How often all ranks may start again after one has failed.
  int64_t replacements = 0;    ///< How many ranks may be started again alone, in all (job/replace_rule.h).
  std::string no_replacement;  ///< Why none is, although the user asked for it; empty otherwise.
  std::string run_id = "none";
  bool has_random_id = false;  ///< Whether run_id only makes the job unique: neither the user nor a scheduler chose it.
  std::string role = "default";
  std::string master_addr = "127.0.0.1";  ///< An address of this node.
  std::optional<uint16_t> master_port;    ///< nullopt: any free port.
  /// The options that named them, for messages.
  std::string master_addr_option = "--master-addr", master_port_option = "--master-port";
  int64_t keyboard_rank = 0;  ///< The rank that gets standard input and the terminal's signals.
  BindMode bind;              ///< Which CPUs each rank may use.
  /// If true, each rank sees only one GPU, as device 0, and has local rank 0.
  bool virtual_local_rank = false;
  std::vector<int> stop_signals = {SIGTERM, SIGINT, SIGHUP,
                                   SIGQUIT};  ///< Signals that end the job. SIGUSR1 and SIGUSR2 are passed on.
  Prefix prefix = Prefix::kAllRanks;
  LogOptions logs;
  ColorMode color = ColorMode::kAuto;  ///< Whether prefixes have colours.
  bool heads_terminal = false;         ///< Used in an agent: whether the head's standard output is a terminal.
  bool quiet = false;                  ///< Print only why the job failed.
  bool preload = false;            ///< Fork ranks from the program after it was loaded, before its main (preload.h).
  PythonLoading python;            ///< What is loaded of a Python program.
  std::vector<int> inherited_fds;  ///< Descriptors that stay open in every rank, under the same numbers.
};

}  // namespace yoke::launch

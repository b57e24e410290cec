// yoke/cli/run_options.h -- the options of `yoke run`: torchrun's, and its own.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/terminal.h"
#include "yoke/cli/command.h"
#include "yoke/launch/plan/spec.h"

namespace yoke::cli {

/// As they were written. Names are those of the options.
struct RunOptions {
  std::string nproc_per_node = "1";
  double grace_seconds = 10;
  int64_t max_restarts = 0;
  std::string role = "default";
  bool no_prefix = false;
  bool quiet = false;
  ColorMode color = ColorMode::kAuto;

  bool module = false;
  bool no_python = false;
  bool run_path = false;

  std::string log_dir;
  std::string redirects = "0";
  std::string tee = "0";
  std::string local_ranks_filter;
  std::string duplicate_stdout_filters;
  std::string duplicate_stderr_filters;

  std::string nnodes;  ///< Empty: 1, or as srun and mpirun say.
  std::optional<int64_t> node_rank;
  std::string rdzv_backend = "static";
  std::string rdzv_endpoint;
  std::string rdzv_id = "none";
  std::string rdzv_conf;
  bool standalone = false;
  std::string master_addr;
  uint16_t master_port = 0;
  std::string local_addr;
  std::string hosts;
  std::string hostfile;
  std::string ssh = "ssh";
  std::string remote_yoke;
  double heartbeat_timeout_seconds = 15;

  std::string signals_to_handle;
  std::string bind = "auto";
  bool is_bind_given = false;
  std::string numa_binding;
  bool virtual_local_rank = false;
  bool preload = false;
  std::string logs_specs;

  // Of torchrun's own works; they change nothing here.
  std::string monitor_interval, start_method, event_log_handler;
};

void add_run_options(CLI::App& command, RunOptions& options);

/// What to launch. Errors  kInvalidArgument: an option's value; kFailedPrecondition: no GPU, no Python.
launch::LaunchSpec to_spec(const RunOptions& options, const Context& context);

/// `words` as torchrun understands them: a script (`.py`) is Python's, and so is a module. Pure but for `python`, which
/// is asked for the interpreter when one is needed.
std::vector<std::string> program_of(std::vector<std::string> words, const RunOptions& options,
                                    const std::function<std::string()>& python);

}  // namespace yoke::cli

// yoke/launch/torchrun/options.h -- the options of `yoke run` as values: those of torchrun, and yoke's own.
//
// The command line is parsed in yoke/cli/options/run.h; launch.h says what the options mean.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/terminal.h"
#include "yoke/launch/node/nodes.h"

namespace yoke::launch {

/// The options as they were written. Each field has the name of its option.
struct RunOptions {
  std::string nproc_per_node = "1";
  bool is_nproc_given = false;
  double grace_seconds = 10;
  bool is_grace_given = false;
  std::optional<int64_t> shutdown_timeout;  ///< Seconds: --grace in torchrun's words.
  std::string max_restarts = "0";
  int64_t replace = 0;
  int64_t spares = 0;
  std::string role = "default";
  int64_t keyboard = 0;
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
  std::string log_line_prefix_template;

  std::string nnodes;  ///< Empty: the number of nodes in the variables of srun or mpirun, otherwise 1.
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
  std::string allocation;  ///< --in
  std::string ssh = "ssh";
  std::string remote_yoke;
  double heartbeat_timeout_seconds = 15;

  std::string signals_to_handle;
  std::string bind = "auto";
  bool is_bind_given = false;
  std::string numa_binding;
  bool virtual_local_rank = false;
  bool preload = false;
  std::string preload_modules;
  std::string logs_specs;

  // These options control how torchrun itself works; yoke accepts and ignores them.
  std::string monitor_interval, start_method, event_log_handler;
};

struct ListedHosts {
  std::vector<Host> hosts;
  std::string allocation = {};  ///< See NodesSpec::allocation.
};

/// The inputs of a launch besides its options: the program, the environment, and whether this process is an agent.
struct Surroundings {
  std::vector<std::string> program;  ///< PROGRAM and its arguments.
  Environment environment;
  std::string python_loader = {};  ///< PythonLoading::loader.

  // Set in an agent, which carries out the command of a head on another host.
  bool is_agent = false;
  std::optional<int64_t> num_ranks = {};  ///< Replaces --nproc-per-node.
  bool heads_terminal = false;            ///< See LaunchSpec::heads_terminal.

  // These functions are called only if their result is needed.
  /// Returns the path of a program on the PATH, or nullopt if there is none.
  std::function<std::optional<std::string>(const std::string& name)> find_program = {};
  /// Returns the hosts of --hosts, --hostfile or --in, with a function that starts an agent on each.
  std::function<ListedHosts()> list_hosts = {};
  /// Returns the secret that the nodes of this user's jobs share.
  std::function<std::string()> job_token = {};
};

}  // namespace yoke::launch

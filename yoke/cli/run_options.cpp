#include "yoke/cli/run_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <csignal>
#include <random>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/signal_name.h"
#include "yoke/base/text.h"
#include "yoke/cli/color_option.h"
#include "yoke/cli/external.h"
#include "yoke/cli/kill_plan.h"
#include "yoke/cli/num_ranks.h"
#include "yoke/cli/run_nodes.h"
#include "yoke/cli/values.h"

namespace yoke::cli {
namespace {

launch::StreamChoice to_streams(const std::string& text, const char* option) {
  try {
    return launch::StreamChoice(text);
  } catch (const Error& error) {
    throw Error(error.code(), "{}: {}", option, error.what());
  }
}

int to_stop_signal(const std::string& name) {
  int signal = 0;
  try {
    signal = parse_signal(name);
  } catch (const Error& error) {
    throw Error(error.code(), "--signals-to-handle: {}", error.what());
  }
  if (signal != SIGKILL && signal != SIGSTOP) return signal;
  throw Error(ErrorCode::kInvalidArgument, "--signals-to-handle: no process can handle {}", signal_name(signal));
}

/// A node of another size than this one may have the rank.
void check_shown_ranks(const std::set<int64_t>& shown, int64_t num_ranks, bool is_alone) {
  if (shown.empty() || !is_alone || *shown.begin() < num_ranks) return;
  throw Error(ErrorCode::kInvalidArgument, "--local-ranks-filter {}: no rank would be shown; local ranks are 0 to {}",
              fmt::join(shown, ","), num_ranks - 1);
}

launch::LogOptions to_logs(const RunOptions& options, const Environment& environment) {
  launch::LogOptions logs;
  logs.folder = options.log_dir;
  logs.redirects = to_streams(options.redirects, "--redirects");
  logs.tee = to_streams(options.tee, "--tee");
  for (const auto rank : split(options.local_ranks_filter, ',')) {
    logs.shown_local_ranks.insert(to_number(std::string(rank), "--local-ranks-filter"));
  }
  for (const auto filter : split(options.duplicate_stdout_filters, ',')) logs.out_filters.emplace_back(filter);
  for (const auto filter : split(options.duplicate_stderr_filters, ',')) logs.err_filters.emplace_back(filter);
  logs.prefix_template = environment.value_or("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "");
  return logs;
}

/// From which torchrun takes the default of an option: PET_SOME_OPTION.
std::string variable_of(const CLI::Option& option) {
  auto name = "PET_" + option.get_lnames().front();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
  return name;
}

/// --bind, or torchrun's words for it.
std::string bind_of(const RunOptions& options, const Environment& environment) {
  const auto& word = options.numa_binding;
  if (word.empty()) return options.bind;
  if (options.is_bind_given) {
    if (environment.value_or("PET_NUMA_BINDING", "") == word) return options.bind;  // the command line counts first
    throw Error(ErrorCode::kInvalidArgument, "--bind {} and --numa-binding {} say the same thing twice; give one",
                options.bind, word);
  }
  if (word == "node" || word == "socket") return word;
  if (word == "exclusive") return "auto";  // disjoint CPUs of the device's node
  return "cache";                          // core-complex
}

std::string random_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

std::string find_python(const Context& context) {
  if (const auto named = context.environment.find("PYTHON_EXEC")) return *named;
  for (const char* name : {"python", "python3"}) {  // an active environment has both, a bare Debian the second
    if (const auto found = find_program(name, context.environment)) return found->string();
  }
  throw Error(ErrorCode::kFailedPrecondition,
              "there is no python on the PATH; activate an environment, or name one in PYTHON_EXEC");
}

/// Of this node. What each host has is for the agents to count.
int64_t num_ranks(const RunOptions& options, const Context& context, bool runs_elsewhere) {
  if (context.agent != nullptr && context.agent->num_ranks) return *context.agent->num_ranks;
  const auto& text = options.nproc_per_node;
  if (runs_elsewhere && !parse_int(text)) return 1;
  return parse_num_ranks(text, device::count_cpus(), [] { return device::count_gpus(); });
}

}  // namespace

std::vector<std::string> program_of(std::vector<std::string> words, const RunOptions& options,
                                    const std::function<std::string()>& python) {
  if (words.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "no program; for example `yoke run -n 2 -- ./train --epochs 5`");
  }
  if (options.module && options.no_python) {
    throw Error(ErrorCode::kInvalidArgument, "--module is Python's, and --no-python says that this is not");
  }
  const bool is_script = options.run_path || words.front().ends_with(".py");
  if (options.no_python || (!options.module && !is_script)) return words;
  std::vector<std::string> result = {python(), "-u"};
  if (options.module) result.emplace_back("-m");
  result.insert(result.end(), words.begin(), words.end());
  return result;
}

launch::LaunchSpec to_spec(const RunOptions& options, const Context& context) {
  launch::LaunchSpec spec;
  const bool runs_elsewhere = context.agent == nullptr && (!options.hosts.empty() || !options.hostfile.empty());
  spec.argv = program_of(context.rest, options, [&] { return runs_elsewhere ? "python" : find_python(context); });
  spec.environment = context.environment;
  if (!options.logs_specs.empty() && options.logs_specs != "default") {
    throw Error(ErrorCode::kInvalidArgument, "--logs-specs {}: it names Python code, which yoke does not load",
                options.logs_specs);
  }
  if (!options.master_addr.empty()) spec.master_addr = options.master_addr;
  if (options.master_port != 0) spec.master_port = options.master_port;
  spec.num_ranks = num_ranks(options, context, runs_elsewhere);
  const auto store = context.installation.libexec / "yoke-store";
  if (access(store.c_str(), X_OK) == 0) spec.store_program = store.string();
  spec.heads_terminal = context.agent != nullptr && context.agent->heads_terminal;
  spec.environment.erase("YOKE_JOB_TOKEN");  // none of the ranks' business
  spec.grace = std::chrono::round<std::chrono::milliseconds>(std::chrono::duration<double>(options.grace_seconds));
  spec.max_restarts = options.max_restarts;
  spec.role = options.role;
  spec.run_id = options.standalone ? random_id() : options.rdzv_id;
  spec.virtual_local_rank = options.virtual_local_rank;
  spec.preload = options.preload;
  spec.bind = launch::parse_bind_mode(bind_of(options, context.environment));
  if (!options.signals_to_handle.empty()) {
    spec.stop_signals.clear();
    for (const auto name : split(options.signals_to_handle, ',')) {
      spec.stop_signals.push_back(to_stop_signal(std::string(name)));
    }
  }
  if (options.no_prefix) spec.prefix = launch::Prefix::kNone;
  spec.quiet = options.quiet;
  spec.color = options.color;
  spec.logs = to_logs(options, context.environment);
  const bool is_alone =
      !runs_elsewhere && context.agent == nullptr && (options.nnodes.empty() || options.nnodes == "1");
  check_shown_ranks(spec.logs.shown_local_ranks, spec.num_ranks, is_alone);
  return spec;
}

void add_run_options(CLI::App& command, RunOptions& options) {
  const auto option = [&](const std::string& names, auto& target, const char* type, const std::string& text) {
    auto* added = command.add_option(names, target, text)->type_name(type);
    return added->envname(variable_of(*added));
  };
  const auto flag = [&](const std::string& names, bool& target, const std::string& text) {
    auto* added = command.add_flag(names, target, text);
    return added->envname(variable_of(*added));
  };
  option(
      "-n,--nproc-per-node", options.nproc_per_node, "auto|gpu|cpu|N",
      "Ranks: a number; gpu, one for each GPU; cpu, one for each processor; auto, gpu where there is one and else cpu")
      ->capture_default_str();
  option("--max-restarts", options.max_restarts, "N", "How often all ranks are started again after one failed")
      ->check(in_range(0, 1'000'000))
      ->capture_default_str();
  command.add_option("--grace", options.grace_seconds, "Time between asking the ranks to stop and killing them")
      ->type_name("SECONDS")
      ->check(in_range(0, 1e6, "seconds"))
      ->capture_default_str();
  option("--signals-to-handle", options.signals_to_handle, "NAMES",
         "Signals that end the job; otherwise SIGTERM,SIGINT,SIGHUP,SIGQUIT. SIGUSR1 and SIGUSR2 are passed on");
  command.add_option("--bind", options.bind, "CPUs of each rank: auto, those nearest to its GPU; see `yoke bind`")
      ->type_name("auto|none|node|socket|cache|mask:LIST|cpus:LIST")
      ->each([&options](const std::string&) { options.is_bind_given = true; })
      ->capture_default_str();
  option("--numa-binding", options.numa_binding, "node|socket|exclusive|core-complex", "torchrun's words for --bind");
  flag("--virtual-local-rank", options.virtual_local_rank,
       "Each rank sees one GPU, its device 0, and has local rank 0");

  command.add_flag(
      "--preload", options.preload,
      "Fork ranks from the program, loaded once and stopped before its main: for C++ programs on libyoke_dist");

  flag("-m,--module", options.module, "The program is a Python module: python -u -m PROGRAM");
  flag("--no-python", options.no_python, "The program is not Python's, although its name ends in .py");
  flag("--run-path", options.run_path, "The program is a Python script, although its name does not end in .py");

  option("--log-dir", options.log_dir, "DIR",
         "Folder for logs and error files: DIR/ID_XXXXXX/attempt_N/LOCAL-RANK/{stdout.log,stderr.log,error.json}");
  option("-r,--redirects", options.redirects, "0..3|RANK:0..3,...",
         "What goes into logs and not on the screen: 1 standard output, 2 standard error, 3 both")
      ->capture_default_str();
  option("-t,--tee", options.tee, "0..3|RANK:0..3,...", "What goes into logs and on the screen")->capture_default_str();
  option("--local-ranks-filter", options.local_ranks_filter, "RANKS", "Show these local ranks alone: 0,1");
  option("--duplicate-stdout-filters", options.duplicate_stdout_filters, "TEXTS",
         "Lines of --tee with one of these texts, of all ranks, also into filtered_stdout.log");
  option("--duplicate-stderr-filters", options.duplicate_stderr_filters, "TEXTS", "The same of standard error");
  command.add_flag("--no-prefix", options.no_prefix, "Do not begin lines with [rank]");
  command.add_flag("-q,--quiet", options.quiet, "Say nothing but why the job failed, and show no status line");
  add_color_option(command, options.color);

  command
      .add_option("--hosts", options.hosts, "Run on these hosts, reached by ssh: a,b,c or n[01-04]; a:2 has 2 ranks")
      ->type_name("HOSTS");
  command.add_option("--hostfile", options.hostfile, "The same from a file: a host in each line, slots=N behind it")
      ->type_name("FILE")
      ->excludes("--hosts");
  command.add_option("--ssh", options.ssh, "How hosts are reached: ssh and options for it")
      ->type_name("WORDS")
      ->capture_default_str();
  command.add_option("--remote-yoke", options.remote_yoke, "Where yoke is on the hosts, if not where it is here")
      ->type_name("PATH");
  option("--nnodes", options.nnodes, "N|MIN:MAX",
         "Nodes; the same command is started on each, by hand, srun or mpirun");
  option("--node-rank", options.node_rank, "N", "This node among them; 0 is the head");
  option("--rdzv-endpoint", options.rdzv_endpoint, "HOST:PORT", "Where nodes meet: an address of the head; port 29400");
  option("--rdzv-conf", options.rdzv_conf, "KEY=VALUE,...",
         "join_timeout=600, last_call_timeout=30 (seconds), is_host=1 (this node is the head); others have no effect");
  command
      .add_option("--heartbeat-timeout", options.heartbeat_timeout_seconds,
                  "A node that says nothing for so long is lost")
      ->type_name("SECONDS")
      ->check(in_range(2, 1e6, "seconds"))
      ->capture_default_str();
  option("--local-addr", options.local_addr, "ADDRESS", "Where other nodes reach this one");
  option("--master-addr", options.master_addr, "ADDRESS",
         "Address of the ranks' store; otherwise that of rank 0's node");
  option("--master-port", options.master_port, "PORT", "Port of the ranks' store; 0, or otherwise, a free one")
      ->check(in_range(0, 65'535));
  option("--rdzv-id", options.rdzv_id, "ID", "Name of the job, TORCHELASTIC_RUN_ID")->capture_default_str();
  option("--role", options.role, "NAME", "ROLE_NAME of the ranks")->capture_default_str();
  flag("--standalone", options.standalone, "A job of this node alone, with a name of its own");

  constexpr const char* kNoEffect = "torchrun's; accepted, without effect here";
  option("--rdzv-backend", options.rdzv_backend, "static|c10d|etcd|etcd-v2", kNoEffect);
  option("--monitor-interval", options.monitor_interval, "SECONDS", kNoEffect);
  option("--start-method", options.start_method, "NAME", kNoEffect);
  option("--event-log-handler", options.event_log_handler, "NAME", kNoEffect);
  option("--logs-specs", options.logs_specs, "NAME", "")->group("");
}

}  // namespace yoke::cli

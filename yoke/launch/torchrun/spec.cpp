#include "yoke/launch/torchrun/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/quantity.h"
#include "yoke/base/signal_name.h"
#include "yoke/contract/variables.h"
#include "yoke/device/cpu/count.h"
#include "yoke/device/gpu_count.h"
#include "yoke/launch/torchrun/values.h"

namespace yoke::launch {
namespace {

StreamChoice to_streams(const std::string& text, const char* option) {
  try {
    return StreamChoice(text);
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

/// Refuses a filter that matches no local rank. Only a job of one node is checked, because other nodes of a job may
/// have more ranks.
void check_shown_ranks(const std::set<int64_t>& shown, int64_t num_ranks, bool is_alone) {
  if (shown.empty() || !is_alone || *shown.begin() < num_ranks) return;
  throw Error(ErrorCode::kInvalidArgument, "--local-ranks-filter {}: no rank would be shown; local ranks are 0 to {}",
              fmt::join(shown, ","), num_ranks - 1);
}

LogOptions to_logs(const RunOptions& options, const Environment& environment) {
  LogOptions logs;
  logs.folder = options.log_dir;
  logs.redirects = to_streams(options.redirects, "--redirects");
  logs.tee = to_streams(options.tee, "--tee");
  for (const auto& rank : split_at_commas(options.local_ranks_filter)) {
    logs.shown_local_ranks.insert(to_number(rank, "--local-ranks-filter"));
  }
  logs.out_filters = split_at_commas(options.duplicate_stdout_filters);
  logs.err_filters = split_at_commas(options.duplicate_stderr_filters);
  logs.prefix_template = options.log_line_prefix_template;
  if (logs.prefix_template.empty()) {
    logs.prefix_template = environment.value_or("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "");
  }
  return logs;
}

/// Returns the value of --bind, or the equivalent of torchrun's --numa-binding.
std::string bind_of(const RunOptions& options, const Environment& environment) {
  const auto& word = options.numa_binding;
  if (word.empty()) return options.bind;
  if (options.is_bind_given) {
    if (environment.value_or("PET_NUMA_BINDING", "") == word)
      return options.bind;  // --bind on the command line replaces the variable
    throw Error(ErrorCode::kInvalidArgument,
                "--bind {} and --numa-binding {} both choose the CPUs of ranks; give one of them", options.bind, word);
  }
  if (word == "node" || word == "socket") return word;
  if (word == "exclusive") return "auto";  // ranks get disjoint CPUs of their devices' NUMA nodes
  return "cache";                          // core-complex
}

/// How long a rank may wait in the kernel without a signal reaching it; zero: for ever.
/// Source  torch/distributed/elastic/agent/server/local_elastic_agent.py, _resolve_uninterruptible_state_timeout. There
/// a text that is not a number counts as zero, so a typing error would silently switch the watch off.
std::chrono::milliseconds kernel_sleep_limit(const Environment& environment) {
  constexpr const char* kName = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT";
  const auto text = environment.value_or(kName, "");
  if (text.empty()) return {};
  const auto seconds = parse_real(text);
  if (!seconds)
    throw Error(ErrorCode::kInvalidArgument, "{} {}: give a number of seconds, 0 for no limit", kName, text);
  return *seconds > 0 ? to_time(std::min(*seconds, 1e9)) : std::chrono::milliseconds(0);
}

/// Whether Python runs `name`, and the system does not: a script, a compiled script, a zipped application, or a folder
/// with a __main__.py.
bool is_of_python(const std::string& name) {
  for (const char* ending : {".py", ".pyc", ".pyz"}) {
    if (name.ends_with(ending)) return true;
  }
  std::error_code ignored;
  return std::filesystem::is_regular_file(std::filesystem::path(name) / "__main__.py", ignored);
}

std::string find_python(const Surroundings& surroundings) {
  if (const auto named = surroundings.environment.find("PYTHON_EXEC")) return *named;
  for (const char* name : {"python", "python3"}) {  // an active environment has both, Debian often only python3
    if (const auto found = surroundings.find_program(name)) return *found;
  }
  throw Error(ErrorCode::kFailedPrecondition,
              "there is no python on the PATH; activate an environment, or set PYTHON_EXEC to an interpreter");
}

/// Returns the number of ranks on this node. With --hosts, the agent on each host determines it.
int64_t num_ranks(const RunOptions& options, const Surroundings& surroundings, bool runs_elsewhere) {
  if (surroundings.num_ranks) return *surroundings.num_ranks;
  if (const auto ranks = ranks_of_scheduler(options, surroundings)) return ranks->num_ranks;
  const auto& text = options.nproc_per_node;
  if (runs_elsewhere && !parse_int(text)) return 1;
  return parse_num_ranks(text, device::count_cpus(), [] { return device::count_gpus(); });
}

}  // namespace

std::optional<RanksOfNode> ranks_of_scheduler(const RunOptions& options, const Surroundings& surroundings) {
  if (options.is_nproc_given || surroundings.is_agent || says_where(options)) return std::nullopt;
  const auto& environment = surroundings.environment;
  if (const auto ranks = ranks_of_slurm_node(environment)) return ranks;
  if (!environment.contains("OMPI_COMM_WORLD_RANK") && !environment.contains("FLUX_TASK_RANK")) return std::nullopt;
  if (environment.contains("TORCHELASTIC_RUN_ID")) return std::nullopt;  // inside a rank
  const auto gpus = device::count_gpus().num_gpus;
  if (gpus == 0) return std::nullopt;
  return RanksOfNode{gpus, "one for each GPU of this node"};
}

std::chrono::milliseconds grace_of(const RunOptions& options, const Environment& environment) {
  constexpr const char* kVariable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
  const auto& timeout = options.shutdown_timeout;
  if (options.is_grace_given) {
    const bool is_same = !timeout || static_cast<double>(*timeout) == options.grace_seconds;
    // --grace on the command line replaces the variable PET_SHUTDOWN_TIMEOUT.
    if (is_same || parse_int(environment.value_or("PET_SHUTDOWN_TIMEOUT", "")) == timeout) {
      return to_time(options.grace_seconds);
    }
    throw Error(ErrorCode::kInvalidArgument, "--grace {} and --shutdown-timeout {} are one time; give one of them",
                options.grace_seconds, *timeout);
  }
  if (timeout) return to_time(static_cast<double>(*timeout));
  const auto text = environment.value_or(kVariable, "");
  if (text.empty()) return to_time(options.grace_seconds);
  const auto seconds = parse_real(text);
  if (seconds && *seconds >= 0 && *seconds <= 1e6) return to_time(*seconds);
  throw Error(ErrorCode::kInvalidArgument, "{} {}: give 0 to 1000000 seconds", kVariable, text);
}

std::vector<std::string> describe_missing_servers(const Environment& environment) {
  std::vector<std::string> result;
  if (environment.contains("TORCHELASTIC_RUN_ID")) return result;
  if (environment.find("TORCHELASTIC_ENABLE_FILE_TIMER") == "1") {
    result.emplace_back(
        "TORCHELASTIC_ENABLE_FILE_TIMER has no effect: nothing here watches the timers of "
        "torch.distributed.elastic.timer, so a FileTimerClient fails; leave the variable out");
  }
  if (environment.contains("TORCHELASTIC_HEALTH_CHECK_PORT")) {
    result.emplace_back(
        "TORCHELASTIC_HEALTH_CHECK_PORT has no effect: nothing here answers health checks; `yoke jobs --json` tells "
        "whether ranks run");
  }
  return result;
}

std::vector<std::string> program_of(std::vector<std::string> words, const RunOptions& options,
                                    const std::function<std::string()>& python) {
  if (words.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "no program was given; for example `yoke run -n 2 -- ./train --epochs 5`");
  }
  if (options.module && options.no_python) {
    throw Error(ErrorCode::kInvalidArgument, "--module needs Python, but --no-python excludes it; give one of them");
  }
  const bool is_script = options.run_path || is_of_python(words.front());
  if (options.no_python || (!options.module && !is_script)) return words;
  std::vector<std::string> result = {python(), "-u"};
  if (options.module) result.emplace_back("-m");
  result.insert(result.end(), words.begin(), words.end());
  return result;
}

LaunchSpec to_spec(const RunOptions& options, const Surroundings& surroundings) {
  LaunchSpec spec;
  const bool has_hosts = !options.hosts.empty() || !options.hostfile.empty() || !options.allocation.empty();
  const bool runs_elsewhere = !surroundings.is_agent && has_hosts;
  spec.argv =
      program_of(surroundings.program, options, [&] { return runs_elsewhere ? "python" : find_python(surroundings); });
  spec.environment = surroundings.environment;
  if (!options.logs_specs.empty() && options.logs_specs != "default") {
    throw Error(ErrorCode::kInvalidArgument, "--logs-specs {} names Python code, which yoke does not load",
                options.logs_specs);
  }
  if (!options.master_addr.empty()) spec.master_addr = options.master_addr;
  if (options.master_port != 0) spec.master_port = options.master_port;
  spec.num_ranks = num_ranks(options, surroundings, runs_elsewhere);
  spec.heads_terminal = surroundings.heads_terminal;
  restore_slurm_variables(spec.environment);
  spec.environment.erase(variable::kJobToken);  // ranks do not need the secret
  spec.grace = grace_of(options, surroundings.environment);
  spec.kernel_sleep_limit = kernel_sleep_limit(surroundings.environment);
  const auto restarts = parse_restart_limit(options.max_restarts);
  if (!restarts) {
    throw Error(ErrorCode::kInvalidArgument, "--max-restarts {}: {}", options.max_restarts, kRestartLimits);
  }
  spec.restarts = *restarts;
  spec.role = options.role;
  spec.keyboard_rank = options.keyboard;
  spec.run_id = options.rdzv_id;
  spec.virtual_local_rank = options.virtual_local_rank;
  spec.preload = options.preload || !options.preload_modules.empty();
  spec.python = {.loader = surroundings.python_loader, .modules = options.preload_modules};
  spec.bind = parse_bind_mode(bind_of(options, surroundings.environment));
  if (!options.signals_to_handle.empty()) {
    spec.stop_signals.clear();
    for (const auto& name : split_at_commas(options.signals_to_handle))
      spec.stop_signals.push_back(to_stop_signal(name));
  }
  if (options.no_prefix) spec.prefix = Prefix::kNone;
  spec.quiet = options.quiet;
  spec.color = options.color;
  spec.logs = to_logs(options, surroundings.environment);
  const bool is_alone = !runs_elsewhere && !surroundings.is_agent && (options.nnodes.empty() || options.nnodes == "1");
  check_shown_ranks(spec.logs.shown_local_ranks, spec.num_ranks, is_alone);
  return spec;
}

}  // namespace yoke::launch

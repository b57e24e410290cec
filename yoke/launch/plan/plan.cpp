#include "yoke/launch/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/base/signal_name.h"
#include "yoke/base/text.h"
#include "yoke/contract/rank_env.h"
#include "yoke/contract/variables.h"
#include "yoke/device/visible_gpus.h"

namespace yoke::launch {
namespace {

/// Replaces "${name}" in `text` by `value`.
std::string substitute(std::string text, std::string_view name, std::string_view value) {
  const auto macro = fmt::format("${{{}}}", name);
  for (auto at = text.find(macro); at != text.npos; at = text.find(macro, at + value.size())) {
    text.replace(at, macro.size(), value);
  }
  return text;
}

/// Like Python's string.Template.safe_substitute: replaces ${name} and $name, and $$ by $. Unknown names stay.
std::string fill_template(std::string_view text, const std::map<std::string_view, std::string>& values) {
  const auto is_word = [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; };
  std::string result;
  while (!text.empty()) {
    const auto dollar = std::min(text.find('$'), text.size());
    result += text.substr(0, dollar);
    text.remove_prefix(dollar);
    if (text.empty()) break;
    if (text.starts_with("$$")) {
      result += '$';
      text.remove_prefix(2);
      continue;
    }
    const bool has_braces = text.starts_with("${");
    const size_t from = has_braces ? 2 : 1;
    const auto end = static_cast<size_t>(
        std::find_if_not(text.begin() + static_cast<ptrdiff_t>(from), text.end(), is_word) - text.begin());
    const auto found = values.find(text.substr(from, end - from));
    const bool is_closed = !has_braces || text.substr(end).starts_with('}');
    const auto length = has_braces && is_closed ? end + 1 : end;
    result += found != values.end() && is_closed ? found->second : text.substr(0, length);
    text.remove_prefix(length);
  }
  return result;
}

constexpr const char* kOfTorchrunsServers[] = {"TORCHELASTIC_ENABLE_FILE_TIMER", "TORCHELASTIC_TIMER_FILE",
                                               "TORCHELASTIC_HEALTH_CHECK_PORT"};

std::string names_of(const std::vector<int>& signals) {
  std::vector<std::string> names;
  for (const int signal : signals) names.push_back(signal_name(signal));
  return fmt::format("{}", fmt::join(names, ","));
}

void set_if_unset(Environment& environment, const char* name, std::string value) {
  if (!environment.contains(name)) environment.set(name, std::move(value));
}

Environment common_environment(const LaunchSpec& spec, const NodeFacts& facts) {
  Environment environment = spec.environment;
  // If this launcher itself runs under torchrun, these variables name files and servers of that torchrun, which these
  // ranks must not use.
  if (environment.contains("TORCHELASTIC_RUN_ID")) {
    for (const auto* name : kOfTorchrunsServers) environment.erase(name);
  }
  environment.erase("TORCHELASTIC_ERROR_FILE");
  for (const auto* name : {variable::kProgress, variable::kReplacement, variable::kRankState, variable::kStateCopies})
    environment.erase(name);
  set_if_unset(environment, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  environment.set("TORCHELASTIC_SIGNALS_TO_HANDLE", names_of(spec.stop_signals));
  environment.erase(variable::kTerminal);
  if (facts.on_a_terminal) environment.set(variable::kTerminal, "1");
  return environment;
}

constexpr const char* kCudaVisible = "CUDA_VISIBLE_DEVICES";
constexpr const char* kHipVisible = "HIP_VISIBLE_DEVICES";

/// Returns the variable that says which GPUs --virtual-local-rank may give to ranks. On ROCm HIP_VISIBLE_DEVICES hides
/// GPUs from CUDA_VISIBLE_DEVICES.
const char* source_of_gpus(const Environment& environment) {
  return environment.value_or(kHipVisible, "").empty() ? kCudaVisible : kHipVisible;
}

/// Returns the entry of that variable for this rank, or the local rank itself if the variable is not set.
std::string visible_gpu_of(const LaunchSpec& spec, int64_t local_rank) {
  const auto* const name = source_of_gpus(spec.environment);
  const auto visible = spec.environment.find(name);
  if (!visible) return std::to_string(local_rank);
  std::string_view rest = *visible;
  for (int64_t i = 0;; ++i) {
    const auto entry = rest.substr(0, rest.find(','));
    const auto words = words_of(entry);  // without the blanks of "0, 1"
    if (i == local_rank && words.size() == 1) return std::string(words[0]);
    if (entry.size() == rest.size()) break;
    rest.remove_prefix(entry.size() + 1);
  }
  throw Error(ErrorCode::kInvalidArgument,
              "--virtual-local-rank shows each of {} ranks one GPU, but {}={} has none for local rank {}",
              spec.num_ranks, name, *visible, local_rank);
}

/// Shows the rank its GPU alone. Both variables get it: on ROCm HIP_VISIBLE_DEVICES decides, if it is set.
void show_one_gpu(const LaunchSpec& spec, int64_t local_rank, Environment& environment) {
  const auto gpu = visible_gpu_of(spec, local_rank);
  environment.set(kCudaVisible, gpu);
  if (source_of_gpus(spec.environment) == kHipVisible) environment.set(kHipVisible, gpu);
}

StreamPlan plan_stream(bool is_redirected, bool is_teed, bool is_shown, const std::string& file) {
  StreamPlan result;
  if (is_redirected || is_teed) result.file = file;
  const bool is_printed = is_shown && (is_teed || !is_redirected);
  result.to = is_printed ? StreamPlan::To::kLauncher : StreamPlan::To::kNowhere;
  return result;
}

void plan_output(const LaunchSpec& spec, const NodeFacts& facts, RankPlan& rank) {
  const auto& logs = spec.logs;
  const auto folder = facts.log_folder.empty() ? "" : fmt::format("{}/{}", facts.log_folder, rank.local_rank);
  const bool is_shown = logs.shown_local_ranks.empty() || logs.shown_local_ranks.contains(rank.local_rank);
  const auto redirects = logs.redirects.of(rank.local_rank), tee = logs.tee.of(rank.local_rank);
  rank.out = plan_stream(redirects.out, tee.out, is_shown, folder + "/stdout.log");
  rank.err = plan_stream(redirects.err, tee.err, is_shown, folder + "/stderr.log");
  rank.out.is_filtered = tee.out && !logs.out_filters.empty();
  rank.err.is_filtered = tee.err && !logs.err_filters.empty();
  rank.prefix = prefix_of(spec, facts.place, rank.local_rank, facts.host);
  // A single rank writes directly to the terminal, file or pipe, so that colours, progress bars and debuggers work.
  for (auto* stream : {&rank.out, &rank.err}) {
    stream->is_own = facts.place.is_of_one_rank() && facts.is_screen_here && rank.prefix.empty() &&
                     stream->to == StreamPlan::To::kLauncher && stream->file.empty();
  }
  const auto temporary = facts.error_folder.empty() ? ""
                                                    : fmt::format("{}/attempt_{}_rank_{}.json", facts.error_folder,
                                                                  facts.place.restart_count, rank.local_rank);
  rank.error_file = folder.empty() ? temporary : folder + "/error.json";
  if (rank.error_file.empty()) return;
  if (spec.restarts.follows_progress()) rank.progress_file = rank.error_file + ".progress";
  // Not among the logs, which stay after the job.
  if (spec.replacements > 0) rank.state_file = (temporary.empty() ? rank.error_file : temporary) + ".state";
}

}  // namespace

bool launcher_serves_store(const LaunchSpec& spec, int64_t world_size, bool has_several_nodes) {
  if (spec.environment.find("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == "1") return false;
  return has_several_nodes || world_size > 1;
}

std::string prefix_of(const LaunchSpec& spec, const NodePlace& place, int64_t local_rank, const std::string& host) {
  const auto rank = place.first_rank + local_rank;
  if (!spec.logs.prefix_template.empty()) {
    return fill_template(spec.logs.prefix_template, {{"role_name", spec.role},
                                                     {"rank", std::to_string(rank)},
                                                     {"local_rank", std::to_string(local_rank)},
                                                     {"hostname", host}});
  }
  if (place.is_of_one_rank() || spec.prefix == Prefix::kNone) return "";
  if (spec.prefix == Prefix::kAllButRankZero && rank == 0) return "";
  return fmt::format("[{}] ", rank);
}

std::vector<RankPlan> plan(const LaunchSpec& spec, const NodeFacts& facts) {
  if (spec.argv.empty()) throw Error(ErrorCode::kInvalidArgument, "no program to run");
  if (spec.num_ranks < 1) throw Error(ErrorCode::kInvalidArgument, "cannot start {} ranks", spec.num_ranks);
  if (facts.binding.ranks.size() != static_cast<size_t>(spec.num_ranks)) {
    throw Error(ErrorCode::kInternal, "the plan has {} ranks, but CPUs were chosen for {} ranks", spec.num_ranks,
                facts.binding.ranks.size());
  }

  if (spec.keyboard_rank >= facts.place.world_size && !facts.place.is_elastic) {
    throw Error(ErrorCode::kInvalidArgument, "--keyboard {}: ranks are numbered from 0, and the job has {}",
                spec.keyboard_rank, facts.place.world_size);
  }

  auto environment = common_environment(spec, facts);
  std::vector<RankPlan> result;
  result.reserve(static_cast<size_t>(spec.num_ranks));
  const auto& place = facts.place;
  for (int64_t local_rank = 0; local_rank < spec.num_ranks; ++local_rank) {
    RankPlan one;
    one.local_rank = local_rank;
    one.rank = place.first_rank + local_rank;
    // Replaces the user's MASTER_ADDR and MASTER_PORT, which usually come from an earlier job.
    write_rank_env({.rank = one.rank,
                    .world_size = place.world_size,
                    .local_rank = spec.virtual_local_rank ? 0 : local_rank,
                    .local_world_size = spec.num_ranks,
                    .node_rank = place.node_rank,
                    .num_nodes = place.num_nodes,
                    .master_addr = place.master_addr,
                    .master_port = place.master_port,
                    .agent_serves_store = place.agent_serves_store,
                    .restart_count = place.restart_count,
                    .max_restarts = spec.restarts.num,
                    .run_id = spec.run_id,
                    .role = spec.role,
                    .role_rank = place.first_role_rank + local_rank,
                    .role_world_size = place.role_world_size},
                   environment);
    for (const auto& word : spec.argv) one.argv.push_back(substitute(word, "local_rank", std::to_string(local_rank)));
    if (spec.virtual_local_rank) show_one_gpu(spec, local_rank, environment);
    plan_output(spec, facts, one);
    if (!one.error_file.empty()) environment.set("TORCHELASTIC_ERROR_FILE", one.error_file);
    if (!one.progress_file.empty()) environment.set(variable::kProgress, one.progress_file);
    if (!one.state_file.empty()) {
      const auto number = place.first_replacement == 0 ? 0 : place.first_replacement + local_rank;
      environment.set(variable::kReplacement, std::to_string(number));
      environment.set(variable::kRankState, one.state_file);
      if (place.has_spares) environment.set(variable::kStateCopies, number == 0 ? "1" : "spare");
    }
    const auto& binding = facts.binding.ranks[static_cast<size_t>(local_rank)];
    if (spec.num_ranks > 1 && !spec.environment.contains("OMP_NUM_THREADS")) {
      environment.set("OMP_NUM_THREADS", std::to_string(binding.num_threads));
    }
    // Python buffers up to 8 KiB of output to a pipe. The buffer is lost if the rank is killed.
    if (!spec.environment.contains("PYTHONUNBUFFERED")) environment.set("PYTHONUNBUFFERED", "1");
    if (facts.binding.is_bound) {
      one.cpus = binding.cpus;
      one.memory_nodes = binding.memory_nodes;
    }
    one.environment = environment.to_strings();
    one.inherited_fds = spec.inherited_fds;
    one.holds_master_port = one.rank == 0 && !place.agent_serves_store;
    one.inherits_stdin = one.rank == spec.keyboard_rank;
    // The rank that reads the keyboard must be in the launcher's process group, so that job control includes it.
    if (one.inherits_stdin) one.process_group = facts.terminal_group;
    result.push_back(std::move(one));
  }
  return result;
}

Binding bind_here(const LaunchSpec& spec) {
  const auto gpus = device::visible_gpus(spec.environment);
  std::vector<std::optional<device::DeviceLocality>> devices(static_cast<size_t>(std::max<int64_t>(0, spec.num_ranks)));
  for (size_t rank = 0; rank < devices.size() && !gpus.empty(); ++rank) devices[rank] = gpus[rank % gpus.size()];
  return plan_binding(spec.bind, device::read_cpu_locality(), devices);
}

}  // namespace yoke::launch

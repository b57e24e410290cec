#include "yoke/launch/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/base/rank_env.h"
#include "yoke/device/visible_gpus.h"
#include "yoke/launch/group.h"

namespace yoke::launch {
namespace {

/// "${name}" in `text` becomes `value`.
std::string substitute(std::string text, std::string_view name, std::string_view value) {
  const auto macro = fmt::format("${{{}}}", name);
  for (auto at = text.find(macro); at != text.npos; at = text.find(macro, at + value.size())) {
    text.replace(at, macro.size(), value);
  }
  return text;
}

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
  // Of an outer torchrun's worker: its agent's files and servers are not ours.
  for (const auto* stale : {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_ENABLE_FILE_TIMER", "TORCHELASTIC_TIMER_FILE",
                            "TORCHELASTIC_HEALTH_CHECK_PORT", "TORCHELASTIC_SIGNALS_TO_HANDLE"}) {
    environment.erase(stale);
  }
  set_if_unset(environment, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  environment.set("TORCHELASTIC_SIGNALS_TO_HANDLE", names_of(spec.stop_signals));
  environment.erase("YOKE_TERMINAL");
  if (facts.on_a_terminal) environment.set("YOKE_TERMINAL", "1");
  return environment;
}

/// The entry of CUDA_VISIBLE_DEVICES that is this rank's; its number where there is no such variable.
std::string visible_gpu_of(const LaunchSpec& spec, int64_t local_rank) {
  const auto visible = spec.environment.find("CUDA_VISIBLE_DEVICES");
  if (!visible) return std::to_string(local_rank);
  std::string_view rest = *visible;
  for (int64_t i = 0;; ++i) {
    const auto entry = rest.substr(0, rest.find(','));
    if (i == local_rank && !entry.empty()) return std::string(entry);
    if (entry.size() == rest.size()) break;
    rest.remove_prefix(entry.size() + 1);
  }
  throw Error(ErrorCode::kInvalidArgument,
              "each of {} ranks is to see one GPU, and CUDA_VISIBLE_DEVICES={} has none for local rank {}",
              spec.num_ranks, *visible, local_rank);
}

std::string prefix_of(const LaunchSpec& spec, int64_t rank, int64_t local_rank) {
  if (!spec.logs.prefix_template.empty()) {
    auto prefix = substitute(spec.logs.prefix_template, "role_name", spec.role);
    prefix = substitute(std::move(prefix), "rank", std::to_string(rank));
    return substitute(std::move(prefix), "local_rank", std::to_string(local_rank));
  }
  if (spec.num_ranks == 1 || spec.prefix == Prefix::kNone) return "";
  if (spec.prefix == Prefix::kAllButRankZero && rank == 0) return "";
  return fmt::format("[{}] ", rank);
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
  rank.prefix = prefix_of(spec, rank.rank, rank.local_rank);
  // One rank alone is connected to the terminal, file or pipe itself: colours, progress bars and debuggers work.
  for (auto* stream : {&rank.out, &rank.err}) {
    stream->is_own =
        spec.num_ranks == 1 && rank.prefix.empty() && stream->to == StreamPlan::To::kLauncher && stream->file.empty();
  }
  if (!folder.empty()) {
    rank.error_file = folder + "/error.json";
  } else if (!facts.error_folder.empty()) {
    rank.error_file = fmt::format("{}/attempt_{}_rank_{}.json", facts.error_folder, facts.restart_count, rank.rank);
  }
}

}  // namespace

std::vector<RankPlan> plan(const LaunchSpec& spec, const NodeFacts& facts) {
  if (spec.argv.empty()) throw Error(ErrorCode::kInvalidArgument, "no program to run");
  if (spec.num_ranks < 1) throw Error(ErrorCode::kInvalidArgument, "cannot start {} ranks", spec.num_ranks);
  if (facts.binding.ranks.size() != static_cast<size_t>(spec.num_ranks)) {
    throw Error(ErrorCode::kInternal, "a plan of {} ranks with CPUs for {}", spec.num_ranks,
                facts.binding.ranks.size());
  }

  auto environment = common_environment(spec, facts);
  std::vector<RankPlan> result;
  result.reserve(static_cast<size_t>(spec.num_ranks));
  for (int64_t rank = 0; rank < spec.num_ranks; ++rank) {
    RankEnv place;
    place.rank = rank;
    place.local_rank = spec.virtual_local_rank ? 0 : rank;
    place.world_size = place.local_world_size = spec.num_ranks;
    // MASTER_ADDR and MASTER_PORT of the user's environment are left-overs of other jobs more often than a wish.
    place.master_addr = spec.master_addr;
    place.master_port = facts.master_port;
    if (rank == 0 && facts.master_listen_fd >= 0) place.master_listen_fd = facts.master_listen_fd;
    place.restart_count = facts.restart_count;
    place.max_restarts = spec.max_restarts;
    place.run_id = spec.run_id;
    place.role = spec.role;

    RankPlan one;
    one.rank = one.local_rank = rank;
    for (const auto& word : spec.argv) one.argv.push_back(substitute(word, "local_rank", std::to_string(rank)));
    write_rank_env(place, environment);
    if (spec.virtual_local_rank) environment.set("CUDA_VISIBLE_DEVICES", visible_gpu_of(spec, rank));
    plan_output(spec, facts, one);
    if (!one.error_file.empty()) environment.set("TORCHELASTIC_ERROR_FILE", one.error_file);
    const auto& binding = facts.binding.ranks[static_cast<size_t>(rank)];
    if (spec.num_ranks > 1 && !spec.environment.contains("OMP_NUM_THREADS")) {
      environment.set("OMP_NUM_THREADS", std::to_string(binding.num_threads));
    }
    if (facts.binding.is_bound) {
      one.cpus = binding.cpus;
      one.memory_nodes = binding.memory_nodes;
    }
    one.environment = environment.to_strings();
    one.inherited_fds = spec.inherited_fds;
    if (place.master_listen_fd) one.inherited_fds.push_back(*place.master_listen_fd);
    one.inherits_stdin = rank == 0;
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

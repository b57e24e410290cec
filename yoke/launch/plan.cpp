#include "yoke/launch/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/base/rank_env.h"

namespace yoke::launch {
namespace {

std::string substitute_local_rank(std::string text, int64_t local_rank) {
  constexpr std::string_view kMacro = "${local_rank}";
  const auto value = std::to_string(local_rank);
  for (auto at = text.find(kMacro); at != text.npos; at = text.find(kMacro, at + value.size())) {
    text.replace(at, kMacro.size(), value);
  }
  return text;
}

void set_if_unset(Environment& environment, const char* name, std::string value) {
  if (!environment.contains(name)) environment.set(name, std::move(value));
}

Environment common_environment(const LaunchSpec& spec, const NodeFacts& facts) {
  Environment environment = spec.environment;
  // Of an outer torchrun's worker: its agent's files and servers are not ours.
  for (const auto* stale : {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_ENABLE_FILE_TIMER", "TORCHELASTIC_TIMER_FILE",
                            "TORCHELASTIC_HEALTH_CHECK_PORT"}) {
    environment.erase(stale);
  }
  set_if_unset(environment, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (spec.num_ranks > 1) {
    const auto threads = std::max<int64_t>(1, facts.num_cpus / spec.num_ranks);
    set_if_unset(environment, "OMP_NUM_THREADS", std::to_string(threads));
  }
  environment.erase("YOKE_TERMINAL");
  if (facts.on_a_terminal) environment.set("YOKE_TERMINAL", "1");
  return environment;
}

bool has_prefix(const LaunchSpec& spec, int64_t rank) {
  if (spec.num_ranks == 1 || spec.prefix == Prefix::kNone) return false;
  return spec.prefix == Prefix::kAllRanks || rank != 0;
}

}  // namespace

std::vector<RankPlan> plan(const LaunchSpec& spec, const NodeFacts& facts) {
  if (spec.argv.empty()) throw Error(ErrorCode::kInvalidArgument, "no program to run");
  if (spec.num_ranks < 1) throw Error(ErrorCode::kInvalidArgument, "cannot start {} ranks", spec.num_ranks);

  auto environment = common_environment(spec, facts);
  std::vector<RankPlan> result;
  result.reserve(static_cast<size_t>(spec.num_ranks));
  for (int64_t rank = 0; rank < spec.num_ranks; ++rank) {
    RankEnv place;
    place.rank = place.local_rank = rank;
    place.world_size = place.local_world_size = spec.num_ranks;
    // MASTER_ADDR and MASTER_PORT of the user's environment are left-overs of other jobs more often than a wish.
    place.master_addr = "127.0.0.1";
    place.master_port = facts.master_port;
    if (rank == 0 && facts.master_listen_fd >= 0) place.master_listen_fd = facts.master_listen_fd;

    RankPlan one;
    one.rank = rank;
    for (const auto& word : spec.argv) one.argv.push_back(substitute_local_rank(word, rank));
    write_rank_env(place, environment);
    one.environment = environment.to_strings();
    one.inherited_fds = spec.inherited_fds;
    if (place.master_listen_fd) one.inherited_fds.push_back(*place.master_listen_fd);
    one.inherits_stdin = rank == 0;
    one.inherits_output = spec.num_ranks == 1;
    if (has_prefix(spec, rank)) one.prefix = fmt::format("[{}] ", rank);
    result.push_back(std::move(one));
  }
  return result;
}

}  // namespace yoke::launch

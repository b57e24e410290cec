#include "yoke/profile/recording.h"

#include <fmt/format.h>

#include <algorithm>

namespace yoke::profile {

ProfileRequest Recording::request_after(int64_t num_steps) const {
  return {.folder = options_.folder,
          .first = num_steps + options_.wait + options_.warmup,
          .warmup = options_.warmup,
          .active = options_.active,
          .detail = options_.detail};
}

std::vector<Recording::Answer> Recording::on_hello(int64_t connection, const ProfileHello& hello) {
  if (options_.num_asked > 0) {
    ranks_[connection] = {.hello = hello};
    return ranks_.size() == options_.num_asked ? answer_all() : std::vector<Answer>();
  }
  const bool is_late =
      std::ranges::any_of(ranks_, [&](const auto& one) { return one.second.hello.attempt > hello.attempt; });
  if (is_late || is_complete()) return {{connection, std::nullopt}};
  std::erase_if(ranks_, [&](const auto& one) {
    const auto& rank = one.second;
    const bool has_ended_early = rank.is_closed && !rank.trace;
    return rank.hello.attempt < hello.attempt || (has_ended_early && rank.hello.rank == hello.rank);
  });
  const bool is_there =
      std::ranges::any_of(ranks_, [&](const auto& one) { return one.second.hello.rank == hello.rank; });
  if (is_there) return {{connection, std::nullopt}};
  auto& rank = ranks_[connection] = {.hello = hello};
  rank.request = request_after(hello.num_steps);
  return {{connection, rank.request}};
}

/// Ranks that step together may be one step apart. All get the same steps to record, so that their traces can be
/// compared.
std::vector<Recording::Answer> Recording::answer_all() {
  int64_t num_steps = 0;
  for (const auto& [_, rank] : ranks_) num_steps = std::max(num_steps, rank.hello.num_steps);
  std::vector<Answer> answers;
  for (auto& [connection, rank] : ranks_) {
    rank.request = request_after(num_steps);
    answers.push_back({connection, rank.request});
  }
  return answers;
}

void Recording::on_news(int64_t connection, const ProfileNews& news) {
  const auto found = ranks_.find(connection);
  if (found == ranks_.end()) return;
  auto& rank = found->second;
  if (news.num_steps) rank.hello.num_steps = *news.num_steps;
  if (news.trace) rank.trace = *news.trace;
  if (news.failure) fail(fmt::format("rank {}: {}", rank.hello.rank, *news.failure));
}

void Recording::fail(const std::string& reason) {
  if (!failure_) failure_ = reason;
}

void Recording::on_closed(int64_t connection) {
  const auto found = ranks_.find(connection);
  if (found == ranks_.end()) return;
  auto& rank = found->second;
  rank.is_closed = true;
  if (options_.num_asked == 0 || rank.trace) return;
  fail(fmt::format("rank {} (process {}) ended before its trace was written", rank.hello.rank, rank.hello.pid));
}

bool Recording::is_complete() const {
  const auto num_wanted = options_.num_asked > 0 ? options_.num_asked
                          : ranks_.empty()       ? 1
                                                 : static_cast<size_t>(ranks_.begin()->second.hello.local_world_size);
  return ranks_.size() >= num_wanted &&
         std::ranges::all_of(ranks_, [](const auto& one) { return one.second.trace.has_value(); });
}

std::vector<std::string> Recording::traces() const {
  std::map<int64_t, std::string> by_rank;
  for (const auto& [_, rank] : ranks_) {
    if (rank.trace) by_rank[rank.hello.rank] = *rank.trace;
  }
  std::vector<std::string> result;
  for (auto& [_, trace] : by_rank) result.push_back(std::move(trace));
  return result;
}

std::string Recording::progress() const {
  const Rank* last = nullptr;  // the rank with the fewest steps so far
  for (const auto& [_, rank] : ranks_) {
    if (!rank.trace && (last == nullptr || rank.hello.num_steps < last->hello.num_steps)) last = &rank;
  }
  if (last == nullptr) return ranks_.empty() ? "no rank has ended a step" : "all ranks have written their traces";
  if (!last->request) {
    return fmt::format("{} of {} ranks have ended a step", ranks_.size(), options_.num_asked);
  }
  return fmt::format("rank {} has ended {} of the {} steps to the end of the recording", last->hello.rank,
                     last->hello.num_steps, last->request->first + last->request->active);
}

}  // namespace yoke::profile

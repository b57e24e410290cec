#include "yoke/launch/job/restart_rule.h"

#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/process.h"

namespace yoke::launch {
namespace {

/// How long the start after the first attempt without a step waits, and the longest wait.
constexpr std::chrono::seconds kFirstDelay{1}, kLongestDelay{60};

std::chrono::seconds delay_after(int64_t num_attempts) {
  auto delay = kFirstDelay;
  for (int64_t i = 1; i < num_attempts && delay < kLongestDelay; ++i) delay *= 2;
  return std::min(delay, kLongestDelay);
}

}  // namespace

std::optional<int64_t> FailedAttempt::most_steps() const {
  std::optional<int64_t> most;
  for (const auto& [reporter, count] : steps) most = std::max(most.value_or(count), count);
  return most;
}

bool RestartRule::may_restart() const {
  return limit_.follows_progress() ? limit_.num > 0 : num_restarts_ < limit_.num;
}

std::string RestartRule::describe_restart() const {
  const auto text = launch::describe_restart(num_restarts_, limit_);
  if (!limit_.follows_progress()) return text;
  return fmt::format("{} ({} of {} within {} steps, at step {})", text, restarted_at_.size(), limit_.num,
                     limit_.num_steps, farthest_.value_or(0));
}

RestartRule::Verdict RestartRule::judge(const FailedAttempt& attempt) {
  if (!may_restart()) return {};
  if (!limit_.follows_progress()) {
    ++num_restarts_;
    return {.restarts = true};
  }
  const auto made = attempt.most_steps();
  farthest_ = std::max(farthest_, made);
  if (!farthest_) {
    return {.why =
                "there is no restart, because no rank has reported a step of the training, so the program may never "
                "have started (train::Run reports steps, and a loop of its own by report_progress() or, in Python, "
                "yoke.progress())"};
  }
  // A rank that reports nothing, as where only rank 0 does, is as far as the one that reports most.
  if (attempt.rank && made) {
    const auto own = attempt.steps.find(*attempt.rank);
    const Failure failure{*attempt.rank, own == attempt.steps.end() ? *made : own->second, attempt.wait_status};
    if (std::ranges::find(failures_, failure) != failures_.end()) {
      return {.why = fmt::format("there is no restart, because rank {} ended in the same way after step {} before",
                                 failure.rank, failure.step)};
    }
    failures_.push_back(failure);
  }
  std::erase_if(restarted_at_, [&](int64_t step) { return *farthest_ - step >= limit_.num_steps; });
  if (static_cast<int64_t>(restarted_at_.size()) >= limit_.num) {
    return {.why = fmt::format("there is no restart, because the limit of {} within {} steps is reached at step {}",
                               limit_.num, limit_.num_steps, *farthest_)};
  }
  restarted_at_.push_back(*farthest_);
  ++num_restarts_;
  num_without_step_ = made ? 0 : num_without_step_ + 1;
  if (made) return {.restarts = true};
  return {.restarts = true,
          .why = "the ranks made no step this time, so the cause may lie outside of the program",
          .delay = delay_after(num_without_step_)};
}

}  // namespace yoke::launch

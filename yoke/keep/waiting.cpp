#include "yoke/keep/waiting.h"

#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/format.h"

namespace yoke::keep {

std::optional<std::string> QueueNews::next(const claim::Outlook& outlook, Clock::time_point now) {
  constexpr std::chrono::seconds kPause(10), kSmall(60);
  const auto& turn = outlook.turn;
  const auto start = turn.expected_wait ? std::optional(now + *turn.expected_wait) : std::nullopt;
  const bool is_start_new =
      start.has_value() != told_start_.has_value() || (start && std::chrono::abs(*start - *told_start_) > kSmall);
  if (turn.position == 0) return std::nullopt;
  if (turn.position == position_ && (now < told_at_ + kPause || (outlook.holders == holders_ && !is_start_new))) {
    return std::nullopt;
  }
  position_ = turn.position;
  holders_ = outlook.holders;
  told_start_ = start;
  told_at_ = now;
  auto text = fmt::format("position {} in the queue", position_);
  if (turn.expected_wait) {
    text += turn.expected_wait->count() == 0 ? ", next" : ", expected in " + format_duration(*turn.expected_wait);
  }
  if (turn.excess) {
    text += "; held back by a limit";
  } else if (!holders_.empty()) {
    text += fmt::format("; claimed by {}", holders_);
  }
  return text;
}

claim::LockWait StaleAttempts::after(const claim::Allocation& allocation, bool waits) {
  claim::LockWait wait;
  count_ = allocation.is_stale ? count_ + 1 : 0;
  if (count_ == 0) return wait;
  constexpr int kMost = 20, kLongestTerm = 10;
  if (count_ >= kMost && !waits) {
    throw Error(ErrorCode::kUnavailable,
                "{} times, looking at the claims took too long, or others claimed at the same moment, so nothing was "
                "taken; try again",
                count_);
  }
  // Who has waited for the lock need not wait again, or the devices that are read now would be old, too.
  if (allocation.has_passed_by) wait.patience = std::chrono::milliseconds(0);
  wait.term *= std::min(count_, kLongestTerm);
  return wait;
}

}  // namespace yoke::keep

// yoke/launch/job/restart_rule.h -- decides whether all ranks start again after a failure. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "yoke/launch/plan/restart_limit.h"

namespace yoke::launch {

/// How an attempt, the time from one start of all ranks to their end, failed.
struct FailedAttempt {
  std::optional<int64_t> rank;       ///< The rank that failed first, if it was a rank.
  int wait_status = 0;               ///< Of that rank.
  std::map<int64_t, int64_t> steps;  ///< For each rank that reported steps, how many (yoke/contract/progress.h).

  /// The steps of the rank that has made most; nullopt if no rank reported any.
  std::optional<int64_t> most_steps() const;
};

/// A limit without steps allows so many restarts, whatever the ranks do, as torchrun. A limit with steps allows so many
/// within that many steps of the training, and none
///   - if no attempt has made a step: the program cannot start (a wrong path, an import, an option);
///   - if the same rank ends in the same way after the same step as before: the program would do so again.
/// An attempt that makes no step although one before did has met something outside of the program, such as a file
/// system or a port. The next start then waits, each time twice as long.
class RestartRule {
 public:
  explicit RestartRule(RestartLimit limit) : limit_(limit) {}

  struct Verdict {
    bool restarts = false;
    std::string why;                ///< Why there is no restart or a delay; empty if the limit says all.
    std::chrono::seconds delay{0};  ///< How long the next start waits.
  };
  /// Decides about an attempt that failed. If it may start again, it counts as a restart.
  Verdict judge(const FailedAttempt& attempt);

  /// Whether the limit allows a restart, as far as is known before the ranks' steps are.
  bool may_restart() const;
  int64_t num_restarts() const { return num_restarts_; }
  /// The restart that judge() allowed last: "restart 2 of 3", or "restart 5 (2 of 3 within 1000 steps, at step 4100)".
  std::string describe_restart() const;
  const RestartLimit& limit() const { return limit_; }

 private:
  struct Failure {
    int64_t rank, step;
    int wait_status;
    bool operator==(const Failure&) const = default;
  };

  RestartLimit limit_;
  int64_t num_restarts_ = 0;
  std::optional<int64_t> farthest_;   ///< The most steps of any attempt.
  std::deque<int64_t> restarted_at_;  ///< The farthest step at each restart that may still count, in order.
  std::vector<Failure> failures_;     ///< Of ranks that had made steps.
  int64_t num_without_step_ = 0;      ///< The attempts without a step since the last one with steps.
};

}  // namespace yoke::launch

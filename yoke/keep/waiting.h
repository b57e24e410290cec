// yoke/keep/waiting.h -- what somebody who waits for devices is told, and how long for the lock that all share. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "yoke/base/clock.h"
#include "yoke/claim/allocate.h"

namespace yoke::keep {

/// Says where in the queue a request is, when it can expect to start and who has the devices, whenever one of these has
/// changed, though not again and again where claims are short.
class QueueNews {
 public:
  /// The sentence for the user; nullopt: there is nothing new.
  std::optional<std::string> next(const claim::Outlook& outlook, Clock::time_point now);

 private:
  int64_t position_ = 0;
  std::string holders_;  ///< As was told at `told_at_`.
  std::optional<Clock::time_point> told_start_;
  Clock::time_point told_at_;
};

/// Counts attempts in sequence that decided nothing, because the devices had been read too long ago.
class StaleAttempts {
 public:
  /// How the next attempt waits for the lock. Errors  kUnavailable: too many were in vain, and the request does not
  /// wait.
  claim::LockWait after(const claim::Allocation& allocation, bool waits);

 private:
  int count_ = 0;
};

}  // namespace yoke::keep

// yoke/launch/node/earliest.h -- when a loop that polls is next to do something.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace yoke::launch {

/// The earliest of several times.
class Earliest {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void take(const std::optional<Time>& time) {
    if (time && (!earliest_ || *time < *earliest_)) earliest_ = time;
  }

  /// For poll(): how long it is from `now` until then, rounded up, and at most `limit`.
  int milliseconds_from(Time now, int limit) const {
    if (!earliest_) return limit;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*earliest_ - now).count();
    return static_cast<int>(std::clamp<decltype(left)>(left, 0, limit));
  }

 private:
  std::optional<Time> earliest_;
};

}  // namespace yoke::launch

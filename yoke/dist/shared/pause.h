// yoke/dist/shared/pause.h -- how a thread waits for other ranks: it looks again at once, then lets other threads run
// in between, then sleeps.
#pragma once

#include <sched.h>

#include <chrono>

#include "yoke/base/clock.h"

namespace yoke::dist::shared {

/// A sleeper looks around so often: nothing rings when a rank dies.
inline constexpr std::chrono::milliseconds kNap(20);

class Pause {
 public:
  explicit Pause(int num_spins) : num_spins_(num_spins) {}

  /// Returns false when it is time to sleep.
  bool take_briefly() {
    if (num_looks_++ < num_spins_) return true;
    const auto now = Clock::now();
    if (num_looks_ == num_spins_ + 1) since_ = now;
    if (now >= since_ + kYieldTime) return false;
    sched_yield();
    return true;
  }
  /// Whether it is time to look for reasons to wait no longer.
  bool is_long() const { return num_looks_ > num_spins_; }
  void end() { num_looks_ = 0; }

 private:
  /// For so long it lets other threads run in between, which costs nothing if none wants to.
  static constexpr std::chrono::microseconds kYieldTime{60};

  int num_spins_;
  int num_looks_ = 0;
  Clock::time_point since_;
};

}  // namespace yoke::dist::shared

// yoke/launch/node/heartbeat.h -- decides when one side of a channel must send something, and when its peer is lost.
// Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace yoke::launch {

/// Both sides send something every second, so silence means a dead process or a cut connection.
class Heartbeat {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kSayEvery{1};

  /// `silence`: the time without a message after which the peer counts as lost.
  Heartbeat(Time now, std::chrono::milliseconds silence)
      : silence_(silence), last_heard_(now), last_said_(now), last_turn_(now) {}

  void set_silence(std::chrono::milliseconds silence) { silence_ = silence; }
  void on_heard(Time now) { last_heard_ = now; }
  void on_said(Time now) { last_said_ = now; }
  /// Called in each turn of the loop, after what has arrived was read. A turn that comes late was held up on this side,
  /// by SIGSTOP for example, and the peer may have been, too. Only a part of that time counts as silence.
  void on_turn(Time now) {
    const auto counts = std::max<std::chrono::nanoseconds>(silence_ / 4, 2 * kSayEvery);
    const auto late = now - std::exchange(last_turn_, now) - counts;
    if (late > late.zero()) last_heard_ = std::min<Time>(now, last_heard_ + late);
  }
  Time next_turn() const { return last_turn_ + kSayEvery; }  ///< When on_turn() must be called.

  bool is_lost(Time now) const { return now >= last_heard_ + silence_; }
  bool has_to_say(Time now) const { return now >= last_said_ + kSayEvery; }
  /// Returns when has_to_say() or is_lost() becomes true. `can_say`: whether all earlier messages were sent; if false,
  /// only is_lost() matters.
  Time next_time(bool can_say) const {
    const auto lost = last_heard_ + silence_;
    return can_say ? std::min<Time>(lost, last_said_ + kSayEvery) : lost;
  }

  std::chrono::milliseconds silence() const { return silence_; }
  Time last_heard() const { return last_heard_; }

 private:
  std::chrono::milliseconds silence_;
  Time last_heard_, last_said_, last_turn_;
};

}  // namespace yoke::launch

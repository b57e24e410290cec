// yoke/profile/timeline.h -- a trace as sets of time intervals: the work of the host and of the device, and the steps.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "yoke/profile/intervals.h"
#include "yoke/profile/trace.h"

namespace yoke::profile {

/// A step of the training thread. If the trace marks no steps, each step of the optimizer ends one; if there are fewer
/// than two of these, the whole trace is one step.
struct Window {
  int64_t number = 0;
  Interval time;
};

class Timeline {
 public:
  explicit Timeline(const Trace& trace);

  /// The times in which events of this kind ran. For the loader and the optimizer, only the training thread counts.
  const Intervals& of(Kind kind) const { return by_kind_[static_cast<size_t>(kind)]; }
  Intervals of(std::initializer_list<Kind> kinds) const;
  /// The events of the kinds `first` to `last`, sorted by track and time.
  std::vector<const Event*> events(Kind first, Kind last) const;

  Kind kind_of(const Event& event) const { return trace_.names[event.name].kind; }
  bool has_device() const { return has_device_; }
  bool has_steps() const { return has_steps_; }  ///< Whether the trace marks steps.
  /// The training thread: the thread with the steps, the optimizer or the loader. Without these, it is the thread with
  /// the most operations, but that may also be autograd's.
  uint32_t main_track() const { return main_track_; }
  const std::vector<Window>& windows() const { return windows_; }
  /// Returns the index of the step that contains `time`; -1 if no step does.
  int64_t window_at(int64_t time) const;
  const Intervals& in_steps() const { return in_steps_; }

 private:
  void find_main_track();
  void find_windows();
  void find_steps_of_optimizer(int64_t begin);

  const Trace& trace_;
  bool has_device_ = false, has_steps_ = false;
  Interval device_ = {INT64_MAX, INT64_MIN};  ///< From the device's first event to the end of its last.
  uint32_t main_track_ = 0;
  std::array<Intervals, kNumKinds> by_kind_;
  std::vector<Window> windows_;
  Intervals in_steps_;
};

}  // namespace yoke::profile

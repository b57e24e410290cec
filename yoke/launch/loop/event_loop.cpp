#include "yoke/launch/loop/event_loop.h"

#include <algorithm>

namespace yoke::launch {

void WaitSet::until(const std::optional<LoopTime>& time) {
  if (time && (!earliest_ || *time < *earliest_)) earliest_ = time;
}

void WaitSet::clear() {
  polls_.clear();
  flags_.clear();
  earliest_.reset();
}

void WaitSet::add(int fd, short events, bool& is_ready) {
  is_ready = false;
  if (fd < 0) return;
  polls_.push_back({fd, events, 0});
  flags_.push_back(&is_ready);
}

void WaitSet::wait(LoopTime now, std::chrono::milliseconds limit) {
  if (earliest_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*earliest_ - now);
    limit = std::clamp(left, std::chrono::milliseconds(0), limit);
  }
  poll(polls_.data(), polls_.size(), static_cast<int>(limit.count()));
  for (size_t i = 0; i < polls_.size(); ++i) *flags_[i] = polls_[i].revents != 0;
}

void EventLoop::turn(std::span<EventSource* const> sources, std::chrono::milliseconds limit) {
  waits_.clear();
  for (auto* const source : sources) source->add_to(waits_);
  read_clock();
  waits_.wait(now_, limit);
  read_clock();
  for (auto* const source : sources) source->handle(now_);
}

}  // namespace yoke::launch

#include "yoke/launch/loop/event_loop.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "yoke/base/format.h"

namespace yoke::launch {
namespace {

std::chrono::nanoseconds time_up() {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

std::string describe(const Stall& stall) {
  const auto length = format_duration(stall.length);
  switch (stall.where) {
    case Stall::Where::kWait: return "was stopped, or got no processor, for " + length;
    case Stall::Where::kTurn: return "was stopped, got no processor, or waited for a file system, for " + length;
    case Stall::Where::kAsleep: return "was on a suspended machine for " + length;
  }
  return "";
}

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
  has_stalled_ = false;
  waits_.clear();
  for (auto* const source : sources) source->add_to(waits_);
  read_clock();
  note_stall(Stall::Where::kTurn, {});
  waits_.wait(now_, limit);
  read_clock();
  note_stall(Stall::Where::kWait, limit);
  for (auto* const source : sources) source->handle(now_);
}

/// `expected`: how long this part of the turn may last. A machine that is suspended stops steady_clock, but not that of
/// other hosts.
void EventLoop::note_stall(Stall::Where where, std::chrono::milliseconds expected) {
  const auto up = time_up(), passed = up - std::exchange(last_up_, up);
  const auto asleep = passed - (now_ - std::exchange(last_, now_));
  if (passed == up) return;  // the first time
  if (passed < expected + kShortestStall) return;
  stall_ = {.length = std::chrono::floor<std::chrono::milliseconds>(passed),
            .where = asleep > passed / 2 ? Stall::Where::kAsleep : where,
            .end = now_};
  has_stalled_ = true;
}

}  // namespace yoke::launch

#include "yoke/profile/timeline.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace yoke::profile {

Timeline::Timeline(const Trace& trace) : trace_(trace) {
  find_main_track();
  for (const auto& event : trace.events) {
    const auto kind = kind_of(event);
    if (is_device_work(kind) || kind == Kind::kDeviceOptimizer) {
      has_device_ = has_device_ || is_device_work(kind);
      device_ = {std::min(device_.begin, event.start_ns), std::max(device_.end, event.end_ns())};
    }
    const bool is_of_main_track = kind == Kind::kLoader || kind == Kind::kOptimizer;
    if (is_of_main_track && event.track != main_track_) continue;
    by_kind_[static_cast<size_t>(kind)].push_back({event.start_ns, event.end_ns()});
  }
  for (auto& set : by_kind_) set = union_of(std::move(set));
  find_windows();
}

Intervals Timeline::of(std::initializer_list<Kind> kinds) const {
  Intervals all;
  for (const auto kind : kinds) all.insert(all.end(), of(kind).begin(), of(kind).end());
  return union_of(std::move(all));
}

std::vector<const Event*> Timeline::events(Kind first, Kind last) const {
  std::vector<const Event*> events;
  for (const auto& event : trace_.events) {
    if (kind_of(event) >= first && kind_of(event) <= last) events.push_back(&event);
  }
  std::ranges::sort(events, [](const Event* a, const Event* b) {
    return std::tuple(a->track, a->start_ns, -a->duration_ns) < std::tuple(b->track, b->start_ns, -b->duration_ns);
  });
  return events;
}

int64_t Timeline::window_at(int64_t time) const {
  const auto after =
      std::ranges::upper_bound(windows_, time, {}, [](const Window& window) { return window.time.begin; });
  if (after == windows_.begin() || time >= std::prev(after)->time.end) return -1;
  return std::prev(after) - windows_.begin();
}

void Timeline::find_main_track() {
  for (const auto kind : {Kind::kStep, Kind::kOptimizer, Kind::kLoader}) {
    const auto found = std::ranges::find(trace_.events, kind, [&](const Event& event) { return kind_of(event); });
    if (found == trace_.events.end()) continue;
    main_track_ = found->track;
    return;
  }
  std::map<uint32_t, int64_t> num_operations;
  for (const auto& event : trace_.events) {
    if (kind_of(event) == Kind::kOperation) ++num_operations[event.track];
  }
  int64_t most = 0;
  for (const auto& [track, count] : num_operations) {
    if (count > most) std::tie(main_track_, most) = std::pair(track, count);
  }
}

/// A step of the training ends when the optimizer's step ends, as in the traces of `yoke profile`. With several
/// optimizers, the first one counts.
void Timeline::find_steps_of_optimizer(int64_t begin) {
  auto ends = events(Kind::kOptimizer, Kind::kOptimizer);
  std::erase_if(ends, [&](const Event* event) { return event->track != main_track_; });
  std::erase_if(ends, [name = ends.empty() ? 0 : ends[0]->name](const Event* event) { return event->name != name; });
  if (ends.size() < 2) return;
  for (const auto* event : ends) {
    windows_.push_back({std::ssize(windows_), {begin, event->end_ns()}});
    begin = event->end_ns();
  }
}

void Timeline::find_windows() {
  Interval whole = {INT64_MAX, INT64_MIN};
  for (const auto& event : trace_.events) {
    whole = {std::min(whole.begin, event.start_ns), std::max(whole.end, event.end_ns())};
    if (kind_of(event) != Kind::kStep || event.track != main_track_) continue;
    windows_.push_back({trace_.names[event.name].step, {event.start_ns, event.end_ns()}});
  }
  std::ranges::sort(windows_, [](const Window& a, const Window& b) { return a.time.begin < b.time.begin; });
  int64_t last_end = INT64_MIN;
  std::erase_if(windows_, [&](Window& window) {  // steps may overlap, because their times are rounded
    window.time.begin = std::max(window.time.begin, last_end);
    last_end = std::max(last_end, window.time.end);
    return window.time.length() <= 0;
  });
  has_steps_ = !windows_.empty();
  if (!has_steps_) find_steps_of_optimizer(whole.begin);
  if (windows_.empty()) {
    // Before the device's first event, the device may have had work that the trace does not contain.
    if (has_device_) whole.begin = device_.begin;
    windows_.push_back({0, {whole.begin, std::max(whole.end, whole.begin + 1)}});
  }
  // Before the first event of the device, its work is unknown. So the first of several steps does not count.
  constexpr size_t kMinStepsToLeaveOne = 3;
  if (has_device_ && windows_.size() >= kMinStepsToLeaveOne) windows_.erase(windows_.begin());
  // If the host is ahead of the device by more than a step, most of the device's work comes after the host's last step.
  // Then the host's steps do not match the device's, so the whole time is divided into equal steps.
  const auto first = windows_.front().time.begin, last = windows_.back().time.end;
  const auto count = static_cast<int64_t>(windows_.size());
  if (device_.end > last && device_.end - last > (last - first) / count) {
    const auto length = (device_.end - first) / count;
    for (int64_t i = 0; i < count; ++i) {
      windows_[static_cast<size_t>(i)].time = {first + i * length, first + (i + 1) * length};
    }
  }
  for (const auto& window : windows_) in_steps_.push_back(window.time);
  in_steps_ = union_of(std::move(in_steps_));
}

}  // namespace yoke::profile

#include "yoke/claim/idle.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "yoke/claim/ledger.h"

namespace yoke::claim {
namespace {

constexpr std::chrono::seconds kUsualInterval(30);

const device::Device* find_by_id(const device::Snapshot& snapshot, const std::string& id) {
  for (const auto& device : snapshot.devices) {
    if (id_of(device) == id) return &device;
    for (const auto& instance : device.instances) {
      if (fmt::format("{}:{}", device.index, instance.index) == id) return &instance;
    }
  }
  return nullptr;
}

}  // namespace

std::optional<bool> is_used(const device::Device& device) {
  if (device.state != device::State::kFree && device.state != device::State::kBusy) return std::nullopt;
  if (!knows_all_processes(device)) return std::nullopt;
  const bool has_process =
      std::ranges::any_of(device.processes, [](const auto& process) { return process.type != "graphics"; });
  return has_process && device.readings.utilization_percent.value_or(1) > 0;
}

std::vector<std::optional<bool>> uses_by_id(const device::Snapshot& snapshot, const std::vector<std::string>& ids) {
  std::vector<std::optional<bool>> used;
  for (const auto& id : ids) {
    const auto* const device = find_by_id(snapshot, id);
    used.push_back(device == nullptr ? std::nullopt : is_used(*device));
  }
  return used;
}

Activity after_look(const Note& note, const std::vector<std::optional<bool>>& used, Time now) {
  Activity activity = note.activity.value_or(Activity{.looked_at = note.since});
  activity.used_at.resize(note.keys.size(), note.since);
  const auto elapsed =
      std::chrono::duration_cast<std::chrono::seconds>(std::max(now - activity.looked_at, Time::duration(0)));
  for (size_t i = 0; i < activity.used_at.size(); ++i) {
    const bool is_idle = i < used.size() && used[i] == false;
    if (is_idle) {
      activity.idle_device_seconds += elapsed.count();
    } else {
      activity.used_at[i] = now;
    }
  }
  activity.looked_at = now;
  return activity;
}

std::optional<std::chrono::seconds> idle_time(const Note& note, const std::string& key, Time now) {
  if (!note.activity || now - note.activity->looked_at > 4 * kUsualInterval) return std::nullopt;
  for (size_t i = 0; i < note.keys.size() && i < note.activity->used_at.size(); ++i) {
    if (key_in_name(note.keys[i]) != key_in_name(key)) continue;
    return std::chrono::duration_cast<std::chrono::seconds>(
        std::max(now - note.activity->used_at[i], Time::duration(0)));
  }
  return std::nullopt;
}

std::chrono::milliseconds look_interval(const IdleLimits& limits) {
  constexpr std::chrono::milliseconds kShortest(250);
  std::chrono::milliseconds interval = kUsualInterval;
  for (const auto& limit : {limits.warn, limits.end}) {
    if (limit) interval = std::min<std::chrono::milliseconds>(interval, std::chrono::milliseconds(*limit) / 4);
  }
  return std::max(interval, kShortest);
}

void IdleWatch::note_use(Clock::time_point now) {
  used_at_ = now;
  is_warned_ = false;
}

std::chrono::seconds IdleWatch::idle_for(Clock::time_point now) const {
  return std::chrono::duration_cast<std::chrono::seconds>(now - used_at_);
}

IdleStep IdleWatch::step(Clock::time_point now) {
  const auto idle = now - used_at_;
  if (limits_.end && idle >= *limits_.end) return std::exchange(is_ended_, true) ? IdleStep::kNone : IdleStep::kEnd;
  if (!limits_.warn || idle < *limits_.warn) return IdleStep::kNone;
  return std::exchange(is_warned_, true) ? IdleStep::kNone : IdleStep::kWarn;
}

}  // namespace yoke::claim

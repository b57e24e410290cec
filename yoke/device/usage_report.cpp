#include "yoke/device/usage_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace yoke::device {
namespace {

constexpr size_t kMaxBins = 2048;
constexpr double kLongestGap = 4;  ///< In sampling intervals. A reading is a mean over at most a second, so longer gaps
                                   ///< are unknown.

void raise(std::optional<int64_t>& most, const std::optional<int64_t>& value) {
  if (value && (!most || *value > *most)) most = value;
}

std::optional<int64_t> rounded(const std::optional<double>& value) {
  return value ? std::optional<int64_t>(std::llround(*value)) : std::nullopt;
}

/// Returns the lowest percentage that utilisation did not exceed for `share` of the time.
std::optional<double> percentile(const std::array<double, 101>& seconds_at, double share) {
  double total = 0;
  for (const double seconds : seconds_at) total += seconds;
  if (total <= 0) return std::nullopt;
  double seen = 0;
  for (size_t percent = 0; percent < seconds_at.size(); ++percent) {
    seen += seconds_at[percent];
    if (seen >= share * total * (1 - 1e-12)) return static_cast<double>(percent);
  }
  return 100;
}

}  // namespace

void UsageRecorder::add(Seconds time, const Snapshot& snapshot,
                        const std::function<bool(const DeviceProcess&)>& is_ours) {
  const double elapsed = last_time_ ? std::max(0.0, (time - *last_time_).count()) : 0;
  const double known = std::min(elapsed, kLongestGap * options_.interval.count());
  last_time_ = time;
  ++num_samples_;
  for_each_device(snapshot, [&](const Device& device, const std::string& id) {
    const bool is_watched = options_.is_watched ? options_.is_watched(id) : device.vendor != Vendor::kCpu;
    if (is_watched) add(time, known, elapsed - known, device, id, is_ours);
  });
}

void UsageRecorder::add(Seconds time, double known, double gap, const Device& device, const std::string& id,
                        const std::function<bool(const DeviceProcess&)>& is_ours) {
  if (!tracks_.contains(id)) order_.push_back(id);
  auto& track = tracks_[id];
  const auto& readings = device.readings;
  track.last.vendor = device.vendor;
  if (!device.facts.uuid.empty() || !device.facts.name.empty()) track.last.facts = device.facts;
  track.last.readings = readings;

  bool is_in_use = false;
  std::optional<int64_t> program_memory;
  for (const auto& process : device.processes) {
    if (!is_ours(process)) continue;
    is_in_use = true;
    if (process.memory_bytes) program_memory = program_memory.value_or(0) + *process.memory_bytes;
  }
  if (is_in_use && !std::exchange(track.was_used, true)) track.first_used = time;
  if (is_in_use) track.last_used = time;

  track.unknown += gap;
  if (readings.utilization_percent) {
    const auto percent = std::clamp<int64_t>(*readings.utilization_percent, 0, 100);
    track.seconds_at[static_cast<size_t>(percent)] += known;
    track.utilization.add(static_cast<double>(percent), known);
    if (is_in_use) track.utilization_in_use.add(static_cast<double>(percent), known);
  } else {
    track.unknown += known;
  }
  raise(track.memory_peak, readings.memory_used_bytes);
  raise(track.memory_total, readings.memory_total_bytes);
  raise(track.program_memory_peak, program_memory);
  raise(track.power_peak, readings.power_mw);
  if (readings.power_mw) track.power.add(static_cast<double>(*readings.power_mw), known);
  if (readings.energy_mj) {
    if (!track.first_energy) track.first_energy = readings.energy_mj;
    // After the driver was reloaded the counter starts at zero again.
    if (track.last_energy && *readings.energy_mj < *track.last_energy) track.energy_is_continuous = false;
    track.last_energy = readings.energy_mj;
  }
  if (readings.throttle_reasons) {
    track.throttle_known += known;
    for (const auto& reason : *readings.throttle_reasons) {
      if (reason != "idle") track.throttled[reason] += known;
    }
  }
  add_to_timeline(track, time, known);
}

void UsageRecorder::add_to_timeline(Track& track, Seconds time, double weight) {
  if (weight <= 0) return;
  if (track.bin_seconds <= 0) track.bin_seconds = weight;
  const auto middle = std::max(0.0, time.count() - weight / 2);
  while (middle / track.bin_seconds >= static_cast<double>(kMaxBins)) {
    std::vector<Bin> halves((track.bins.size() + 1) / 2);
    for (size_t i = 0; i < track.bins.size(); ++i) {
      const auto& bin = track.bins[i];
      auto& half = halves[i / 2];
      half.utilization.total += bin.utilization.total;
      half.utilization.seconds += bin.utilization.seconds;
      half.memory.total += bin.memory.total;
      half.memory.seconds += bin.memory.seconds;
    }
    track.bins = std::move(halves);
    track.bin_seconds *= 2;
  }
  const auto index = static_cast<size_t>(middle / track.bin_seconds);
  if (track.bins.size() <= index) track.bins.resize(index + 1);
  auto& bin = track.bins[index];
  const auto& readings = track.last.readings;
  if (readings.utilization_percent) bin.utilization.add(static_cast<double>(*readings.utilization_percent), weight);
  if (readings.memory_used_bytes && readings.memory_total_bytes.value_or(0) > 0) {
    bin.memory.add(
        100.0 * static_cast<double>(*readings.memory_used_bytes) / static_cast<double>(*readings.memory_total_bytes),
        weight);
  }
}

DeviceUsage UsageRecorder::usage_of(const std::string& id, const Track& track) const {
  DeviceUsage usage{.id = id, .uuid = track.last.facts.uuid, .name = track.last.facts.name, .was_used = track.was_used};
  usage.unknown = Seconds(track.unknown);
  usage.mean_percent = track.utilization.mean();
  usage.p5_percent = percentile(track.seconds_at, 0.05);
  usage.p50_percent = percentile(track.seconds_at, 0.5);
  usage.p95_percent = percentile(track.seconds_at, 0.95);
  if (track.utilization.seconds > 0) {
    double under = 0;
    for (size_t percent = 0; percent < track.seconds_at.size(); ++percent) {
      if (static_cast<double>(percent) < options_.goal_percent) under += track.seconds_at[percent];
    }
    usage.under_goal_percent = 100 * under / track.utilization.seconds;
  }
  usage.first_used = track.first_used;
  usage.last_used = track.last_used;
  usage.mean_while_used_percent = track.utilization_in_use.mean();
  usage.memory_peak_bytes = track.memory_peak;
  usage.memory_total_bytes = track.memory_total;
  usage.program_memory_peak_bytes = track.program_memory_peak;
  usage.mean_power_mw = rounded(track.power.mean());
  usage.peak_power_mw = track.power_peak;
  usage.is_energy_counted = track.first_energy && track.energy_is_continuous;
  if (usage.is_energy_counted) {
    usage.energy_mj = *track.last_energy - *track.first_energy;
  } else if (track.power.seconds > 0) {
    usage.energy_mj = std::llround(track.power.total);  // in mW s
  }
  for (const auto& [reason, seconds] : track.throttled) {
    if (seconds > 0) usage.throttled_percent[reason] = 100 * seconds / track.throttle_known;
  }
  usage.bin = Seconds(track.bin_seconds);
  for (const auto& bin : track.bins) usage.timeline.push_back({bin.utilization.mean(), bin.memory.mean()});
  return usage;
}

UsageReport UsageRecorder::report(Seconds duration) const {
  UsageReport report{.duration = duration, .num_samples = num_samples_, .goal_percent = options_.goal_percent};
  const bool is_any_used = std::ranges::any_of(tracks_, [](const auto& entry) { return entry.second.was_used; });
  for (const auto& id : order_) {
    const auto& track = tracks_.at(id);
    if (track.was_used || !is_any_used) report.devices.push_back(usage_of(id, track));
  }
  return report;
}

}  // namespace yoke::device

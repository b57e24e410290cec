#include "yoke/web/history.h"

#include <algorithm>
#include <cmath>

#include "yoke/base/json.h"

namespace yoke::web {
namespace {

std::optional<double> value_of(Metric metric, const device::Readings& readings) {
  const auto number = [](const std::optional<int64_t>& value, double unit) {
    return value ? std::optional(static_cast<double>(*value) / unit) : std::nullopt;
  };
  switch (metric) {
    case Metric::kUse: return number(readings.utilization_percent, 1);
    case Metric::kMemory:
      if (readings.memory_total_bytes.value_or(0) <= 0) return std::nullopt;
      return number(readings.memory_used_bytes, static_cast<double>(*readings.memory_total_bytes) / 100);
    case Metric::kTemperature: return number(readings.temperature_celsius, 1);
    case Metric::kPower: return number(readings.power_mw, 1000);
  }
  return std::nullopt;
}

/// The members of the JSON, in the order of kMetrics.
constexpr std::array kKeys = {"utilization_percent", "memory_percent", "temperature_celsius", "power_watts"};
static_assert(kKeys.size() == kMetrics.size());

double tenths(double value) { return std::round(value * 10) / 10; }

int64_t seconds_of(Series::Time time) {
  return std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
}

/// The buckets of a metric from the interval `first` to `last`, with null for those that are not known.
Json metric_json(const Series& series, size_t metric, int64_t first, int64_t last) {
  Json min = Json::array(), mean = Json::array(), max = Json::array();
  auto at = series.buckets().begin();
  for (auto number = first; number <= last; ++number) {
    while (at != series.buckets().end() && at->first < number) ++at;
    const bool is_there = at != series.buckets().end() && at->first == number && at->second[metric].count > 0;
    const auto* const bucket = is_there ? &at->second[metric] : nullptr;
    min.push_back(bucket != nullptr ? Json(tenths(bucket->min)) : Json());
    mean.push_back(bucket != nullptr ? Json(tenths(bucket->mean())) : Json());
    max.push_back(bucket != nullptr ? Json(tenths(bucket->max)) : Json());
  }
  return {{"min", std::move(min)}, {"mean", std::move(mean)}, {"max", std::move(max)}};
}

}  // namespace

void Bucket::add(double value) {
  const auto small = static_cast<float>(value);
  min = count == 0 ? small : std::min(min, small);
  max = count == 0 ? small : std::max(max, small);
  sum += value;
  ++count;
}

int64_t Series::number_of(Time time) const {
  return std::chrono::floor<std::chrono::seconds>(time).time_since_epoch() / length_;
}

void Series::add(Time time, const device::Readings& readings) {
  const auto number = number_of(time);
  while (!buckets_.empty() && buckets_.back().first > number) buckets_.pop_back();
  if (buckets_.empty() || buckets_.back().first < number) buckets_.emplace_back(number, Buckets());
  while (buckets_.front().first <= number - capacity_) buckets_.pop_front();
  for (size_t i = 0; i < kMetrics.size(); ++i) {
    if (const auto value = value_of(kMetrics[i], readings)) buckets_.back().second[i].add(*value);
  }
}

void History::add(const device::Snapshot& snapshot) {
  if (!begin_ || snapshot.time < *begin_) begin_ = snapshot.time;
  for (const auto& device : snapshot.devices) {
    auto& kept = devices_[id_of(device)];
    if (!device.facts.uuid.empty()) kept.uuid = device.facts.uuid;
    kept.recent.add(snapshot.time, device.readings);
    kept.day.add(snapshot.time, device.readings);
  }
  std::erase_if(devices_, [&](const auto& entry) {
    const auto& day = entry.second.day;
    return day.buckets().back().first <= day.number_of(snapshot.time) - day.capacity();
  });
}

const History::Device* History::find(const std::string& id) const {
  const auto found = devices_.find(id);
  return found == devices_.end() ? nullptr : &found->second;
}

Json History::to_json(Series::Time now) const {
  Json json = {{"time_seconds", seconds_of(now)},
               {"since_seconds", begin_ ? Json(seconds_of(*begin_)) : Json()},
               {"bucket_seconds", Device().day.bucket_length().count()},
               {"devices", Json::array()}};
  for (const auto& [id, device] : devices_) {
    const auto first = device.day.buckets().front().first;
    const auto last = device.day.number_of(now);
    Json one = {
        {"device", id}, {"uuid", or_null(device.uuid)}, {"start_seconds", first * device.day.bucket_length().count()}};
    for (size_t i = 0; i < kMetrics.size(); ++i) one[kKeys[i]] = metric_json(device.day, i, first, last);
    json["devices"].push_back(std::move(one));
  }
  return json;
}

}  // namespace yoke::web

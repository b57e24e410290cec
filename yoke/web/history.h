// yoke/web/history.h -- what each device did in the last 24 hours, in bounded memory. Pure.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "yoke/device/device.h"

namespace yoke::web {

enum class Metric { kUse, kMemory, kTemperature, kPower };
inline constexpr std::array kMetrics = {Metric::kUse, Metric::kMemory, Metric::kTemperature, Metric::kPower};

/// The values of one metric in one interval.
struct Bucket {
  float min = 0, max = 0;
  double sum = 0;
  uint32_t count = 0;  ///< 0: no value is known.

  void add(double value);
  double mean() const { return sum / count; }
};

/// Equal intervals of time, which end with that of the newest sample. An interval without a sample has no buckets.
class Series {
 public:
  using Time = std::chrono::system_clock::time_point;
  using Buckets = std::array<Bucket, kMetrics.size()>;  ///< In the order of kMetrics.

  Series(std::chrono::seconds bucket_length, int64_t capacity) : length_(bucket_length), capacity_(capacity) {}

  std::chrono::seconds bucket_length() const { return length_; }
  int64_t capacity() const { return capacity_; }

  /// Adds the readings. If the clock was set back, intervals that are now in the future are dropped.
  void add(Time time, const device::Readings& readings);

  /// The number of the interval that has this time.
  int64_t number_of(Time time) const;

  /// The buckets by the numbers of their intervals, the oldest first. Those of the last `capacity` intervals are kept.
  const std::deque<std::pair<int64_t, Buckets>>& buckets() const { return buckets_; }

 private:
  std::chrono::seconds length_;
  int64_t capacity_;
  std::deque<std::pair<int64_t, Buckets>> buckets_;
};

class History {
 public:
  struct Device {
    std::string uuid;  ///< Empty if no sample had it.
    Series recent{std::chrono::seconds(10), 90};
    Series day{std::chrono::minutes(5), 288};
  };

  /// Adds the devices of a snapshot, without MIG instances. Devices without a sample for a day are forgotten.
  void add(const device::Snapshot& snapshot);

  /// `id`: as id_of() has it. A lost device keeps its id, but may have no UUID.
  const Device* find(const std::string& id) const;

  /// The time of the first sample; nullopt if there is none.
  std::optional<Series::Time> begin() const { return begin_; }

  /// docs/web.md has the contract.
  nlohmann::ordered_json to_json(Series::Time now) const;

 private:
  std::map<std::string, Device> devices_;
  std::optional<Series::Time> begin_;
};

}  // namespace yoke::web

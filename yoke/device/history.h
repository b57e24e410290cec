// yoke/device/history.h -- the recent values of one reading, for graphs and reports.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>

namespace yoke::device {

/// A ring buffer: when it is full, the oldest sample is dropped.
class History {
 public:
  using Time = std::chrono::system_clock::time_point;

  struct Sample {
    Time time;
    std::optional<double> value;  ///< nullopt if the value was requested but is not known.

    bool operator==(const Sample&) const = default;
  };

  explicit History(size_t capacity = 600) : capacity_(capacity) {}

  void push(Time time, std::optional<double> value) {
    samples_.push_back({time, value});
    while (samples_.size() > capacity_) samples_.pop_front();
  }

  /// Returns the samples, the oldest first.
  const std::deque<Sample>& samples() const { return samples_; }

  bool operator==(const History&) const = default;

 private:
  size_t capacity_;
  std::deque<Sample> samples_;
};

}  // namespace yoke::device

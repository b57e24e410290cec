// yoke/web/samples.h -- one sample for all who ask at the same time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "yoke/device/device.h"

namespace yoke::web {

/// A snapshot and what is served of it, made when first asked for and shared by all responses.
class Sample {
 public:
  using Clock = std::chrono::steady_clock;

  Sample(device::Snapshot snapshot, Clock::time_point begun) : begun_(begun), snapshot_(std::move(snapshot)) {}

  Clock::time_point begun() const { return begun_; }
  std::shared_ptr<const std::string> metrics();
  std::shared_ptr<const std::string> json();

 private:
  Clock::time_point begun_;
  device::Snapshot snapshot_;
  std::shared_ptr<const std::string> metrics_, json_;
};

/// Used by one thread, the owner's; samples are taken on another.
class Samples {
 public:
  /// With a sample that is no older than `max_age`; with null when it could not be taken.
  using Callback = std::function<void(Sample*)>;

  /// `post` runs a function on the owner's thread, from any thread.
  Samples(std::function<device::Snapshot()> sample, std::chrono::milliseconds max_age,
          std::function<void(std::function<void()>)> post);
  Samples(const Samples&) = delete;
  Samples& operator=(const Samples&) = delete;
  ~Samples() { stop(); }

  /// Calls `callback` once: now, or when the sample that is being taken is there.
  void get(Callback callback);

  /// Waits for the sample that is being taken, if one is, and takes no other. Callbacks that wait are dropped.
  void stop();

 private:
  void work();
  void deliver(std::shared_ptr<Sample> sample);

  const std::function<device::Snapshot()> sample_;
  const std::chrono::milliseconds max_age_;
  const std::function<void(std::function<void()>)> post_;
  std::shared_ptr<Sample> last_;
  std::vector<Callback> waiting_;  ///< Not empty: a sample is being taken.

  std::mutex mutex_;  ///< For what follows.
  std::condition_variable changed_;
  bool is_wanted_ = false;
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace yoke::web

// yoke/web/samples.h -- takes one sample for all requests that are waiting.
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

/// A snapshot and the texts made from it. Each text is made when it is first used, and all responses share it.
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

/// Its members are called on one thread, the owner's. A second thread takes the samples.
class Samples {
 public:
  /// Called with a sample that is not older than `max_age`, or with null if none could be taken.
  using Callback = std::function<void(Sample*)>;

  /// `post` can be called on any thread, and runs a function on the owner's thread.
  Samples(std::function<device::Snapshot()> sample, std::chrono::milliseconds max_age,
          std::function<void(std::function<void()>)> post);
  Samples(const Samples&) = delete;
  Samples& operator=(const Samples&) = delete;
  ~Samples() { stop(); }

  /// Calls `callback` one time: immediately if the last sample is recent enough, else when the next one is ready.
  void get(Callback callback);

  /// Waits for the sample that is being taken, if any, and starts no other one. Drops waiting callbacks.
  void stop();

 private:
  void work();
  void deliver(std::shared_ptr<Sample> sample);

  const std::function<device::Snapshot()> sample_;
  const std::chrono::milliseconds max_age_;
  const std::function<void(std::function<void()>)> post_;
  std::shared_ptr<Sample> last_;
  std::vector<Callback> waiting_;  ///< Not empty while a sample is being taken.

  std::mutex mutex_;  ///< Protects the members below.
  std::condition_variable changed_;
  bool is_wanted_ = false;
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace yoke::web

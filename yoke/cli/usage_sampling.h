// yoke/cli/usage_sampling.h -- samples of the devices while a program runs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "yoke/base/environment.h"
#include "yoke/device/source.h"
#include "yoke/device/usage_report.h"

namespace yoke::cli {

/// Which processes are a program's: `root`, those below it, and those that were there once.
class Family {
 public:
  explicit Family(int64_t root) : root_(root) {}

  bool contains(const device::DeviceProcess& process);

 private:
  bool descends(int64_t pid) const;

  const int64_t root_;
  std::map<std::pair<int64_t, int64_t>, bool> known_;  ///< By PID and start: nobody is born into a family later.
};

struct UsageSamplingOptions {
  int64_t pid = 0;  ///< Of the program.
  device::Seconds interval{0.5};
  double goal_percent = 90;
  Environment environment;  ///< Of the program: says which GPUs are visible to it.
};

/// Samples on a thread of its own, so that signals and the program's end are handled at once whatever a driver does.
class UsageSampling {
 public:
  /// Takes a first sample, from before the program's first instruction. `source` must outlive this.
  UsageSampling(device::Source& source, UsageSamplingOptions options);
  UsageSampling(const UsageSampling&) = delete;
  UsageSampling& operator=(const UsageSampling&) = delete;
  ~UsageSampling() { stop(); }

  void start();

  /// The last sample, then the end. Takes as long as the drivers' deadline at most.
  void stop();

  // After stop().

  /// Of the devices that the program used; of those visible to it when it was seen on none; of the processors when
  /// there is no GPU.
  device::UsageReport report() const;
  bool has_gpu() const { return has_gpu_; }
  /// Processes on devices that are not in this PID namespace, or hidden: the program's might be among them.
  bool has_seen_strangers() const { return has_seen_strangers_; }
  /// GPUs whose drivers did not tell, in some sample, who used them: the program might have.
  bool has_seen_silence() const { return has_seen_silence_; }

 private:
  using Clock = std::chrono::steady_clock;

  void add(device::Seconds time, const device::Snapshot& snapshot);
  void work();

  device::Source& source_;
  const UsageSamplingOptions options_;
  Family family_;
  std::set<std::string> visible_;
  bool has_gpu_ = true;
  bool has_seen_strangers_ = false;
  bool has_seen_silence_ = false;
  std::unique_ptr<device::UsageRecorder> recorder_;
  Clock::time_point begun_;
  device::Seconds duration_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace yoke::cli

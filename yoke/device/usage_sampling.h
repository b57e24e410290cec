// yoke/device/usage_sampling.h -- takes samples of the devices while a program runs.
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

namespace yoke::device {

/// The processes of a program: `root`, its descendants, and former descendants.
class Family {
 public:
  explicit Family(int64_t root) : root_(root) {}

  bool contains(const DeviceProcess& process);

 private:
  bool descends(int64_t pid) const;

  const int64_t root_;
  /// Whether a process belongs to the program; the key is its PID and start time. A process that was not a descendant
  /// when it was first seen never becomes one.
  std::map<std::pair<int64_t, int64_t>, bool> known_;
};

struct UsageSamplingOptions {
  int64_t pid = 0;  ///< The PID of the program.
  Seconds interval{0.5};
  double goal_percent = 90;
  Environment environment;  ///< The environment of the program, which determines the GPUs that it sees.
};

/// Samples on its own thread, so that signals and the end of the program are handled at once even if a driver hangs.
class UsageSampling {
 public:
  /// Takes a first sample. A caller that starts the program must let it run only after that. `source` must outlive this
  /// object.
  UsageSampling(Source& source, UsageSamplingOptions options);
  UsageSampling(const UsageSampling&) = delete;
  UsageSampling& operator=(const UsageSampling&) = delete;
  ~UsageSampling() { stop(); }

  void start();

  /// Takes the last sample and ends the thread. Waits at most for the drivers' deadline.
  void stop();

  // These functions are called after stop().

  /// Reports on the devices that the program used. If it was seen on no device, the report covers the devices that it
  /// can see, or the CPU if there is no GPU.
  UsageReport report() const;
  bool has_gpu() const { return has_gpu_; }
  /// Whether some processes on devices were hidden or in a different PID namespace. They may have been the program's.
  bool has_seen_strangers() const { return has_seen_strangers_; }
  /// Whether, in some sample, a driver failed to list the processes on its GPUs. The program may have used these GPUs
  /// unnoticed.
  bool has_seen_silence() const { return has_seen_silence_; }

 private:
  using Clock = std::chrono::steady_clock;

  void add(Seconds time, const Snapshot& snapshot);
  void work();

  Source& source_;
  const UsageSamplingOptions options_;
  Family family_;
  std::set<std::string> visible_;
  bool has_gpu_ = true;
  bool has_seen_strangers_ = false;
  bool has_seen_silence_ = false;
  std::unique_ptr<UsageRecorder> recorder_;
  Clock::time_point begun_;
  Seconds duration_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace yoke::device

// yoke/launch/process/kernel_sleep.h -- finds processes that wait in the kernel for long, where no signal reaches them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <vector>

namespace yoke::launch {

/// Whether the main thread of `pid` is in uninterruptible sleep ("D" in ps). False if the process has ended.
bool is_in_kernel_sleep(pid_t pid);

/// Watches processes. A process that is found asleep in every look for the whole limit is reported, once. So short
/// sleeps, as for a disk, do not add up unless they happen to fill every look.
class KernelSleep {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// `limit`: zero to watch nothing.
  explicit KernelSleep(std::chrono::milliseconds limit, std::function<bool(pid_t)> is_asleep = is_in_kernel_sleep)
      : limit_(limit), is_asleep_(std::move(is_asleep)) {}

  void add(pid_t pid);
  void remove(pid_t pid) { since_.erase(pid); }
  /// When look() is to be called; nullopt if nothing is watched.
  std::optional<Time> next_time() const;
  /// Looks at every process, if it is time for that. Returns those that have now slept for the limit.
  std::vector<pid_t> look(Time now);

 private:
  std::chrono::milliseconds limit_;
  std::function<bool(pid_t)> is_asleep_;
  std::map<pid_t, std::optional<Time>> since_;  ///< When a process was first found asleep; nullopt: it is awake.
  Time next_ = Time::min();
};

}  // namespace yoke::launch

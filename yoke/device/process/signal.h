// yoke/device/process/signal.h -- signals for one process and no other that has its number by now.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>

#include "yoke/base/file.h"

namespace yoke::device {

/// Holds a process by a pidfd (Linux 5.3): what is sent reaches it, or nobody.
class ProcessHandle {
 public:
  /// The process `pid` that began at `start_ticks` (ProcessInfo has both).
  /// Errors  kNotFound: it has ended; kFailedPrecondition: this kernel has no pidfds; kUnavailable: out of descriptors.
  ProcessHandle(int64_t pid, int64_t start_ticks, const std::filesystem::path& proc = "/proc");

  /// Errors  kNotFound: it has ended; kPermissionDenied: it is not this user's.
  void signal(int number) const;

  /// Whether it has ended; waits for that until `limit` at most. A zombie has ended.
  bool wait_for_end(std::chrono::milliseconds limit) const;

 private:
  int64_t pid_;
  UniqueFd fd_;
};

}  // namespace yoke::device

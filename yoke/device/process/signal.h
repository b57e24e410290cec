// yoke/device/process/signal.h -- signals one process, and never a later one that has reused its PID.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>

#include "yoke/base/file.h"

namespace yoke::device {

/// Refers to a process by a pidfd (Linux 5.3), so that a signal reaches that process or none.
class ProcessHandle {
 public:
  /// Opens the process `pid` that began at `start_ticks` (ProcessInfo has both).
  /// Errors kNotFound: it has ended; kFailedPrecondition: this kernel has no pidfds; kUnavailable: out of descriptors.
  ProcessHandle(int64_t pid, int64_t start_ticks, const std::filesystem::path& proc = "/proc");

  /// Errors  kNotFound: it has ended; kPermissionDenied: it belongs to a different user.
  void signal(int number) const;

  /// Waits for its end for at most `limit`. Returns whether it has ended; a zombie counts as ended.
  bool wait_for_end(std::chrono::milliseconds limit) const;

 private:
  int64_t pid_;
  UniqueFd fd_;
};

}  // namespace yoke::device

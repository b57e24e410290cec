// yoke/device/process/signal.h -- signals one process, but never a later process that has reused its PID.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>

#include "yoke/base/file.h"

namespace yoke::device {

/// Refers to a process by a pidfd (Linux 5.3), so that a signal cannot reach a different process.
class ProcessHandle {
 public:
  /// Opens the process `pid` that started at `start_ticks` (ProcessInfo has both).
  /// Errors  kNotFound if it has ended; kFailedPrecondition: no pidfds in this kernel; kUnavailable: out of
  /// descriptors.
  ProcessHandle(int64_t pid, int64_t start_ticks, const std::filesystem::path& proc = "/proc");

  /// Errors  kNotFound if the process has ended; kPermissionDenied if it belongs to a different user.
  void signal(int number) const;

  /// Waits until the process has ended, for at most `limit`. Returns whether it has ended; a zombie counts as ended.
  bool wait_for_end(std::chrono::milliseconds limit) const;

 private:
  int64_t pid_;
  UniqueFd fd_;
};

}  // namespace yoke::device

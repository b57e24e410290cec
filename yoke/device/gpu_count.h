// yoke/device/gpu_count.h -- counts the GPUs that a program started here would see.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace yoke::device {

struct GpuCount {
  int64_t num_gpus = 0;
  std::string reason;  ///< Why num_gpus is 0; otherwise empty.
};

/// Asks the NVIDIA driver and, if that shows no GPU, AMD's runtime. This happens in a child process, because
/// initialising a driver opens descriptors, starts threads and does not survive fork. If a driver does not answer
/// within `deadline`, the count is 0, `reason` says so, and the child is killed but not waited for.
/// Errors  kUnavailable: no child can be started.
/// REQUIRES: the caller has one thread.
GpuCount count_gpus(std::chrono::milliseconds deadline = std::chrono::seconds(20));

}  // namespace yoke::device

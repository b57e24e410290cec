// yoke/device/gpu_count.h -- how many GPUs would a program started here see?
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace yoke::device {

struct GpuCount {
  int64_t num_gpus = 0;
  std::string reason;  ///< Why there is none; empty when there are some.
};

/// Asks the NVIDIA driver, and AMD's runtime where NVIDIA's shows nothing, in a child process: initialising a driver
/// opens descriptors, starts threads and does not survive fork. A driver that does not answer within `deadline` counts
/// as none, with that reason; its child is killed and not waited for.
/// Errors  kUnavailable when no child can be started. REQUIRES: the caller has one thread.
GpuCount count_gpus(std::chrono::milliseconds deadline = std::chrono::seconds(20));

}  // namespace yoke::device

// yoke/base/cuda_driver.h -- does this machine have an NVIDIA GPU that a program started here would see?
#pragma once

#include <cstdint>
#include <string>

namespace yoke {

struct DriverProbe {
  int64_t num_devices = 0;
  std::string reason;  ///< Why there is none; empty when there are some.
};

/// Asks libcuda.so.1 itself (cuInit, cuDeviceGetCount), so that CUDA_VISIBLE_DEVICES, MIG and cgroups mean what they
/// mean to the program. cuInit keeps descriptors open and does not survive fork: ask in a child where that matters.
DriverProbe probe_cuda_driver();

}  // namespace yoke

// yoke/contract/cuda_driver.h -- whether a program started here would see an NVIDIA GPU.
#pragma once

#include <cstdint>
#include <string>

namespace yoke {

struct DriverProbe {
  int64_t num_devices = 0;
  std::string reason;  ///< Why num_devices is 0; otherwise empty.
};

/// Asks libcuda.so.1 itself (cuInit, cuDeviceGetCount), so that CUDA_VISIBLE_DEVICES, MIG and cgroups have the same
/// effect as on the program. cuInit leaves descriptors open, and a child forked after cuInit cannot use CUDA. Where
/// that matters, call this function in a child process.
DriverProbe probe_cuda_driver();

}  // namespace yoke

// yoke/device/visible_gpus.h -- finds the GPUs that ranks started here would get, and the CPUs near them. Reads only
// the kernel's files and asks no driver, because `yoke run` must start fast.
#pragma once

#include <filesystem>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/device/cpu/locality.h"

namespace yoke::device {

/// Returns the GPUs in the order in which a program run with `environment` numbers them (visibility.h): NVIDIA's if
/// there are any, else AMD's. Without CUDA_DEVICE_ORDER, the order of the bus is assumed; this is wrong if a machine
/// has several models of GPU. MIG instances are not included.
std::vector<DeviceLocality> visible_gpus(const Environment& environment, const std::filesystem::path& sysroot = "/");

}  // namespace yoke::device

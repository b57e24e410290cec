// yoke/device/visible_gpus.h -- finds the GPUs that ranks started here would get, and the CPUs near them. Reads only
// the kernel's files and asks no driver, so that it is fast enough for `yoke run`.
#pragma once

#include <filesystem>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/device/cpu/locality.h"

namespace yoke::device {

/// The GPUs, in the order of the numbers that a program run with `environment` gives them (see visibility.h): NVIDIA's
/// if there are any, else AMD's. Without CUDA_DEVICE_ORDER, CUDA's order is assumed to be that of the bus; this is
/// wrong if a machine has GPUs of several models. MIG instances are not known here.
std::vector<DeviceLocality> visible_gpus(const Environment& environment, const std::filesystem::path& sysroot = "/");

}  // namespace yoke::device

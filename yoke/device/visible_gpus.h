// yoke/device/visible_gpus.h -- which GPUs would the ranks started here get, and where are they? By the kernel's files
// alone: no driver is asked, so that `yoke run` can afford it.
#pragma once

#include <filesystem>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/device/cpu/locality.h"

namespace yoke::device {

/// In the order in which programs with `environment` number them, as visibility.h tells; NVIDIA's where there are some,
/// else AMD's. CUDA's own order, without CUDA_DEVICE_ORDER, is taken to be that of the bus, which differs where GPUs of
/// several kinds are in one machine. MIG instances are not known here.
std::vector<DeviceLocality> visible_gpus(const Environment& environment, const std::filesystem::path& sysroot = "/");

}  // namespace yoke::device

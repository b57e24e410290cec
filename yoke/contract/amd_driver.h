// yoke/contract/amd_driver.h -- counts the AMD GPUs that a program started on this machine would see.
#pragma once

#include <filesystem>

#include "yoke/base/environment.h"
#include "yoke/contract/cuda_driver.h"

namespace yoke {

/// Reads the files of KFD, amdgpu's compute interface, below `sysroot`, so it does not need a library of ROCm. KFD
/// lists CPUs as nodes too, so only nodes with SIMD units are counted. The count is 0 if this process cannot open
/// /dev/kfd (as in a container without this device), or if ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES hides all GPUs.
/// If a variable hides only some of the GPUs, all are counted, because only ROCm knows which ones are hidden.
DriverProbe probe_amd_driver(const Environment& environment, const std::filesystem::path& sysroot = "/");

/// Advice for a machine whose AMD GPU libtorch cannot use. The text is a clause that ends a message.
inline constexpr const char* kInstallTorchForRocm =
    "install torch for ROCm (from the index of PyTorch's wheels whose name begins with rocm, or as a cluster's PyTorch "
    "container or module), and build yoke with it";

}  // namespace yoke

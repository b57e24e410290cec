// yoke/base/amd_driver.h -- does this machine have an AMD GPU that a program started here would see?
#pragma once

#include <filesystem>

#include "yoke/base/cuda_driver.h"
#include "yoke/base/environment.h"

namespace yoke {

/// Reads the files of KFD, amdgpu's compute interface, below `sysroot`: no library of ROCm need be installed. Counts
/// the nodes with SIMD units, for processors are nodes too. GPUs that this process cannot open (no /dev/kfd, as in a
/// container that was given none) or that ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES hides altogether count as none.
/// Which of several GPUs a variable hides is ROCm's to say.
DriverProbe probe_amd_driver(const Environment& environment, const std::filesystem::path& sysroot = "/");

/// What helps where libtorch cannot use an AMD GPU; half a sentence.
inline constexpr const char* kInstallTorchForRocm =
    "install torch for ROCm (from the index of PyTorch's wheels whose name begins with rocm, or as a cluster's PyTorch "
    "container or module), and build yoke with it";

}  // namespace yoke

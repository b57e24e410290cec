// yoke/dist/gpu/vendor.h -- hides the names that differ between libtorch's builds for CUDA and for ROCm.
//
// PyTorch generates the headers of its ROCm build from those for CUDA with its tool hipify (torch/utils/hipify). In the
// ROCm build, files have different names: c10/cuda/CUDAFunctions.h becomes c10/hip/HIPFunctions.h. C++ names stay the
// same: at::cuda, ProcessGroupNCCL (which then uses RCCL), and DeviceType::CUDA, the type of ROCm devices in libtorch.
// One exception is the namespace of c10's functions: up to libtorch 2.10 the namespace is c10::hip, and that of the
// allocator HIPCachingAllocator; later versions accept c10::hip for functions, and have CUDA's name for the allocator.
#pragma once

#ifdef USE_ROCM
#include <ATen/hip/HIPContext.h>
#include <c10/hip/HIPCachingAllocator.h>
#include <c10/hip/HIPFunctions.h>
#include <torch/version.h>
#else
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#endif

namespace yoke::dist::gpu {

#ifdef USE_ROCM
namespace runtime = c10::hip;
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR > 10
namespace allocator = c10::cuda::CUDACachingAllocator;
#else
namespace allocator = c10::hip::HIPCachingAllocator;
#endif
inline constexpr const char* kName = "hip";
#else
namespace runtime = c10::cuda;
namespace allocator = c10::cuda::CUDACachingAllocator;
inline constexpr const char* kName = "cuda";
#endif

/// NVIDIA's GPUs have bfloat16 in hardware since Ampere. For AMD's GPUs, PyTorch returns true for every model.
inline bool has_bfloat16(c10::DeviceIndex index) {
#ifdef USE_ROCM
  return index >= 0;
#else
  return at::cuda::getDeviceProperties(index)->major >= 8;
#endif
}

}  // namespace yoke::dist::gpu

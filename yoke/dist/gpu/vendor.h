// yoke/dist/gpu/vendor.h -- hides the names that differ between libtorch's builds for CUDA and for ROCm.
//
// PyTorch generates the headers of its ROCm build from those for CUDA with its tool hipify (torch/utils/hipify). In the
// ROCm build, files have different names: c10/cuda/CUDAFunctions.h becomes c10/hip/HIPFunctions.h. C++ names stay the
// same: at::cuda, ProcessGroupNCCL (which then uses RCCL), and DeviceType::CUDA, the type of ROCm devices in libtorch.
#pragma once

#ifdef USE_ROCM
#include <ATen/hip/HIPContext.h>
#include <ATen/hip/HIPGraph.h>
#include <c10/hip/HIPCachingAllocator.h>
#include <c10/hip/HIPFunctions.h>
#include <c10/hip/HIPGuard.h>
#else
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace yoke::dist::gpu {

/// A capture fails at calls of the capturing thread that are not allowed then, but not at those of other threads, such
/// as a loader's.
#ifdef USE_ROCM
inline constexpr const char* kName = "hip";
inline constexpr auto kCaptureMode = hipStreamCaptureModeThreadLocal;
#else
inline constexpr const char* kName = "cuda";
inline constexpr auto kCaptureMode = cudaStreamCaptureModeThreadLocal;
#endif
namespace runtime = c10::cuda;
namespace allocator = c10::cuda::CUDACachingAllocator;

/// NVIDIA's GPUs have bfloat16 in hardware since Ampere. For AMD's GPUs, PyTorch returns true for every model.
inline bool has_bfloat16(c10::DeviceIndex index) {
#ifdef USE_ROCM
  return index >= 0;
#else
  return at::cuda::getDeviceProperties(index)->major >= 8;
#endif
}

}  // namespace yoke::dist::gpu

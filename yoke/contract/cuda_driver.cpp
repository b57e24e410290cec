#include "yoke/contract/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace yoke {

DriverProbe probe_cuda_driver() {
  // The library is never closed: libcuda cannot be unloaded.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {0, "no NVIDIA driver (libcuda.so.1 does not load)"};
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
  if (init == nullptr || count == nullptr) return {0, "libcuda.so.1 lacks cuInit or cuDeviceGetCount"};
  if (const int status = init(0); status != 0) {
    // CUDA_ERROR_NO_DEVICE is 100. An empty CUDA_VISIBLE_DEVICES causes it too.
    return {0, status == 100 ? "the NVIDIA driver shows no device to this process"
                             : fmt::format("cuInit failed with CUDA error {}", status)};
  }
  int num_devices = 0;
  if (const int status = count(&num_devices); status != 0) {
    return {0, fmt::format("cuDeviceGetCount failed with CUDA error {}", status)};
  }
  if (num_devices == 0) return {0, "the NVIDIA driver shows no device to this process"};
  return {num_devices, ""};
}

}  // namespace yoke

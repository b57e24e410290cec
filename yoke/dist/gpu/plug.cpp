// libyoke_cuda.so or libyoke_hip.so: the code that needs libtorch_cuda or libtorch_hip, loaded only on machines with a
// GPU (plug.h).
#include "yoke/dist/plug.h"

#include <algorithm>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "yoke/base/environment.h"
#include "yoke/contract/variables.h"
#include "yoke/dist/gpu/vendor.h"

namespace {

namespace gpu = yoke::dist::gpu;

c10::intrusive_ptr<c10d::Backend> make_nccl(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                            std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(store), rank, size, std::move(options));
}

/// Keeps libtorch's allocator to the share of the device that `yoke claim --share` was given. What the driver itself
/// takes (its context, some hundred MiB) comes on top.
void limit_memory(c10::DeviceIndex index) {
  const char* const text = std::getenv(yoke::variable::kDeviceMemory);
  const auto bytes = text == nullptr ? std::nullopt : yoke::parse_int(text);
  if (!bytes || *bytes <= 0) return;
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);  // makes the allocator
  const auto total = static_cast<double>(at::cuda::getDeviceProperties(index)->totalGlobalMem);
  gpu::allocator::setMemoryFraction(std::min(1.0, static_cast<double>(*bytes) / total), index);
}

constexpr yoke::dist::Plug kPlug = {
    .name = gpu::kName,
    .device_type = c10::DeviceType::CUDA,
    .num_devices = [] { return int64_t{gpu::runtime::device_count()}; },
    .set_device =
        [](c10::DeviceIndex index) {
          gpu::runtime::set_device(index);
          limit_memory(index);
        },
    .device_name = [](c10::DeviceIndex index) { return std::string(at::cuda::getDeviceProperties(index)->name); },
    .has_bfloat16 = gpu::has_bfloat16,
    .make_backend = make_nccl,
};

__attribute__((constructor)) void register_gpu_plug() { yoke::dist::register_plug(kPlug); }

}  // namespace

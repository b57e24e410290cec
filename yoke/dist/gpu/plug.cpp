// libyoke_cuda.so or libyoke_hip.so: the code that needs libtorch_cuda or libtorch_hip, loaded only on machines with a
// GPU (plug.h).
#include "yoke/dist/plug.h"

#include <torch/version.h>

#include <algorithm>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#if __has_include(<torch/csrc/distributed/c10d/nccl2/ProcessGroupNCCL.hpp>)
#include <torch/csrc/distributed/c10d/nccl2/ProcessGroupNCCL.hpp>
#define YOKE_HAS_NCCL2
#endif

#include "yoke/base/environment.h"
#include "yoke/contract/variables.h"
#include "yoke/dist/detail/nccl_engine.h"
#include "yoke/dist/gpu/graphs.h"
#include "yoke/dist/gpu/vendor.h"

namespace {

namespace gpu = yoke::dist::gpu;

std::string engine() {
#ifdef YOKE_HAS_NCCL2
  constexpr bool kHasNccl2 = true;
#else
  constexpr bool kHasNccl2 = false;
#endif
  return yoke::dist::nccl_engine({.major = TORCH_VERSION_MAJOR, .minor = TORCH_VERSION_MINOR, .has_nccl2 = kHasNccl2},
                                 yoke::Environment::of_process());
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const yoke::dist::BackendOptions& of_rank) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = of_rank.timeout;
#ifdef YOKE_HAS_NCCL2
  if (engine() == "nccl2") {
    auto backend = c10::make_intrusive<c10d::nccl2::ProcessGroupNCCL>(of_rank.store, of_rank.rank, of_rank.size,
                                                                      std::move(options));
    // As Python does, so that all ranks make the communicator at the same point. Without a device, nccl2 would take
    // one by the rank's number.
    backend->setBoundDeviceId(of_rank.device);
    return backend;
  }
#endif
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(of_rank.store, of_rank.rank, of_rank.size, std::move(options));
}

#if defined(YOKE_HAS_NCCL2) && TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 15
// Options contain a struct of nccl.h, whose name and size change with NCCL's version. This function has the struct in
// its name. So if the plug was compiled with the nccl.h of another version than libtorch, it cannot be loaded, and does
// not write beyond the end of the smaller struct.
[[maybe_unused, gnu::used]] const auto kSameNccl = &c10d::nccl2::cloneNcclConfig;
#endif

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
    .engine = engine,
    .make_graph_maker = gpu::make_graph_maker,
};

__attribute__((constructor)) void register_gpu_plug() { yoke::dist::register_plug(kPlug); }

}  // namespace

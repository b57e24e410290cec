// libyoke_cuda.so: what needs libtorch_cuda, loaded only where there is a GPU (plug.h).
#include "yoke/dist/plug.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAFunctions.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace {

c10::intrusive_ptr<c10d::Backend> make_nccl(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                            std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(store), rank, size, std::move(options));
}

constexpr yoke::dist::Plug kPlug = {
    .name = "cuda",
    .device_type = c10::DeviceType::CUDA,
    .num_devices = [] { return int64_t{c10::cuda::device_count()}; },
    .set_device = [](c10::DeviceIndex index) { c10::cuda::set_device(index); },
    .device_name = [](c10::DeviceIndex index) { return std::string(at::cuda::getDeviceProperties(index)->name); },
    .has_bfloat16 = [](c10::DeviceIndex index) { return at::cuda::getDeviceProperties(index)->major >= 8; },
    .make_backend = make_nccl,
};

__attribute__((constructor)) void register_cuda_plug() { yoke::dist::register_plug(kPlug); }

}  // namespace

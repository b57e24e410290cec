// A GPU plug without a GPU. Like libtorch_cuda, it registers device hooks and a device guard with libtorch, so libtorch
// sees the device only if the plug is loaded early enough. It has one device, `cuda:0`, with Gloo's collectives.
// Tensors cannot be created on it.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "yoke/dist/plug.h"

namespace {

// libtorch's registry expects this class name.
struct CUDAHooks : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(at::DeviceIndex) const override { return true; }
  at::DeviceIndex deviceCount() const override { return 1; }
  at::DeviceIndex getCurrentDevice() const override { return 0; }
  const at::Generator& getDefaultGenerator(at::DeviceIndex) const override {
    static const at::Generator generator = at::detail::createCPUGenerator();
    return generator;
  }
};

using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
REGISTER_CUDA_HOOKS(CUDAHooks)
C10_REGISTER_GUARD_IMPL(CUDA, c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA>)

c10::intrusive_ptr<c10d::Backend> make_gloo(const yoke::dist::BackendOptions& of_rank) {
  auto options = c10d::ProcessGroupGloo::Options::create(of_rank.timeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(of_rank.store, of_rank.rank, of_rank.size, std::move(options));
}

constexpr yoke::dist::Plug kPlug = {
    .name = "fake",
    .device_type = c10::DeviceType::CUDA,
    .num_devices = [] { return int64_t{at::detail::getCUDAHooks().deviceCount()}; },
    .set_device = [](c10::DeviceIndex index) { std::printf("set_device %d\n", index); },
    .device_name = [](c10::DeviceIndex) { return std::string("Fake GPU"); },
    .has_bfloat16 = [](c10::DeviceIndex) { return true; },
    .make_backend = make_gloo,
    .engine =
        [] {
          const char* const engine = std::getenv("YOKE_FAKE_ENGINE");
          return std::string(engine == nullptr ? "nccl" : engine);
        },
};

__attribute__((constructor)) void register_fake_plug() { yoke::dist::register_plug(kPlug); }

}  // namespace

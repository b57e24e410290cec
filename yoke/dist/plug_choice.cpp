#include "yoke/dist/detail/plug_choice.h"

#include <c10/core/CPUAllocator.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "yoke/contract/amd_driver.h"

namespace yoke::dist {

TorchBuild torch_of_this_process() {
  namespace fs = std::filesystem;
  Dl_info c10{};
  if (dladdr(reinterpret_cast<const void*>(&c10::GetCPUAllocator), &c10) == 0) return {};
  const auto folder = fs::path(c10.dli_fname).parent_path();
  std::error_code error;
  return {.folder = folder.string(),
          .has_cuda = fs::exists(folder / "libtorch_cuda.so", error),
          .has_hip = fs::exists(folder / "libtorch_hip.so", error)};
}

PlugChoice choose_plug(const DriverProbe& nvidia, const DriverProbe& amd, const TorchBuild& torch) {
  if (nvidia.num_devices > 0 && torch.has_cuda) return {"libyoke_cuda.so", {}};
  if (amd.num_devices > 0 && torch.has_hip) return {"libyoke_hip.so", {}};
  const bool is_nvidia = nvidia.num_devices > 0;
  const auto num_gpus = is_nvidia ? nvidia.num_devices : amd.num_devices;
  if (num_gpus == 0) return {"", {false, fmt::format("{}; {}", nvidia.reason, amd.reason)}};
  return {"",
          {true, fmt::format("it is {}'s, but the libtorch in {} is built for {}; {}", is_nvidia ? "NVIDIA" : "AMD",
                             torch.folder,
                             torch.has_cuda  ? "CUDA"
                             : torch.has_hip ? "ROCm"
                                             : "the CPU",
                             is_nvidia ? "install torch for CUDA, and build yoke with it" : kInstallTorchForRocm)}};
}

}  // namespace yoke::dist

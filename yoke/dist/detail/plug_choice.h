// yoke/dist/detail/plug_choice.h -- chooses the plug, given the devices that drivers report and the installed libtorch.
#pragma once

#include <string>

#include "yoke/contract/cuda_driver.h"
#include "yoke/dist/plug.h"

namespace yoke::dist {

/// The vendors for which this process's libtorch was built, according to the files in the folder of libc10.so.
struct TorchBuild {
  std::string folder;
  bool has_cuda = false, has_hip = false;
};
TorchBuild torch_of_this_process();

struct PlugChoice {
  std::string library;  ///< "libyoke_hip.so". Empty if no plug should be loaded; `status` then has the reason.
  PlugStatus status;
};

/// Prefers a GPU that libtorch can use, NVIDIA's before AMD's. If libtorch can use none of the GPUs, the status is
/// `missing` and says what to install. Otherwise a training would silently run on the CPU.
PlugChoice choose_plug(const DriverProbe& nvidia, const DriverProbe& amd, const TorchBuild& torch);

}  // namespace yoke::dist

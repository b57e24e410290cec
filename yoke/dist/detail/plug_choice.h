// yoke/dist/detail/plug_choice.h -- chooses the plug, given the devices that drivers show and the libtorch that is
// installed.
#pragma once

#include <string>

#include "yoke/base/cuda_driver.h"
#include "yoke/dist/plug.h"

namespace yoke::dist {

/// The vendors that the libtorch of this process is built for, by the files in the folder of libc10.so.
struct TorchBuild {
  std::string folder;
  bool has_cuda = false, has_hip = false;
};
TorchBuild torch_of_this_process();

struct PlugChoice {
  std::string library;  ///< "libyoke_hip.so"; empty if no plug is to be loaded; `status` then has the reason.
  PlugStatus status;
};

/// Prefers a GPU that libtorch can use, NVIDIA's before AMD's. If there are only GPUs that it cannot use, the status is
/// `missing` and says what to install, because training on the CPU would be an unnoticed mistake.
PlugChoice choose_plug(const DriverProbe& nvidia, const DriverProbe& amd, const TorchBuild& torch);

}  // namespace yoke::dist

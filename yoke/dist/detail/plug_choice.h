// yoke/dist/detail/plug_choice.h -- chooses the plug, given the devices that drivers show and the libtorch that is
// installed.
#pragma once

#include <string>

#include "yoke/base/cuda_driver.h"
#include "yoke/dist/plug.h"

namespace yoke::dist {

/// The vendors that the libtorch of this process is built for, as the files in the folder of libc10.so show.
struct TorchBuild {
  std::string folder;
  bool has_cuda = false, has_hip = false;
};
TorchBuild torch_of_this_process();

struct PlugChoice {
  std::string library;  ///< "libyoke_hip.so"; empty if no plug is to be loaded; `status` then has the reason.
  PlugStatus status;
};

/// Prefers a GPU that libtorch can use, NVIDIA's before AMD's. If libtorch can use none of the GPUs, the status is
/// `missing` and says what to install; otherwise a training would run on the CPU, and nobody would notice.
PlugChoice choose_plug(const DriverProbe& nvidia, const DriverProbe& amd, const TorchBuild& torch);

}  // namespace yoke::dist

// yoke/dist/detail/plug_choice.h -- which plug, given what the drivers show and what libtorch is built for.
#pragma once

#include <string>

#include "yoke/base/cuda_driver.h"
#include "yoke/dist/plug.h"

namespace yoke::dist {

/// The libtorch of this process, by the files beside libc10.so.
struct TorchBuild {
  std::string folder;
  bool has_cuda = false, has_hip = false;
};
TorchBuild torch_of_this_process();

struct PlugChoice {
  std::string library;  ///< "libyoke_hip.so"; empty: no plug, and `status` says why.
  PlugStatus status;
};

/// A GPU that libtorch can use comes first, NVIDIA's before AMD's. Where there are only others, training on the CPU
/// would be a silent mistake: the status is `missing`, and says what to install.
PlugChoice choose_plug(const DriverProbe& nvidia, const DriverProbe& amd, const TorchBuild& torch);

}  // namespace yoke::dist

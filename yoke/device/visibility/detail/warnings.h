// yoke/device/visibility/detail/warnings.h -- applies the rules of all vendors to one environment, and warns of
// contradictions.
#pragma once

#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/device/visibility/detail/rules.h"

namespace yoke::device {

/// The units that each variable selects. Units of `hip` are positions in `amd_left`, units of `cuda` in `nvidia`, and
/// units of `rocr` in `amd`.
struct Selections {
  Gpus nvidia, amd;
  Gpus amd_left;         ///< The GPUs that ROCr shows, in its order.
  Gpus amd_without_kfd;  ///< AMD GPUs that KFD does not list: ROCr does not know them, so programs cannot use them.
  Selection cuda, rocr, hip;
  std::string hip_variable;  ///< HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES if HIP reads that in its place.
};

Selections select_all(const Environment& environment, const Snapshot& snapshot);

std::vector<std::string> warnings(const Environment& environment, const Selections& selections);

/// Returns a variable's value for use in a message: printable, quoted, and shortened.
std::string in_quotes(std::string_view value);

}  // namespace yoke::device

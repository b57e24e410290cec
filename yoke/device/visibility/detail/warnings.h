// yoke/device/visibility/detail/warnings.h -- applies the rules of all vendors to one environment, and warns of
// contradictions.
#pragma once

#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/device/visibility/detail/rules.h"

namespace yoke::device {

/// The units that each variable selects. Units of `hip` are positions in `amd_left`; other units are positions in
/// `nvidia` and `amd`.
struct Selections {
  Gpus nvidia, amd;
  Gpus amd_left;         ///< The GPUs that ROCr shows, in its order.
  Gpus amd_without_kfd;  ///< Programs cannot compute on them, since ROCr knows only what KFD lists.
  Selection cuda, rocr, hip;
  std::string hip_variable;  ///< HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES in its place.
};

Selections select_all(const Environment& environment, const Snapshot& snapshot);

std::vector<std::string> warnings(const Environment& environment, const Selections& selections);

/// A variable's value for use in a message: printable, quoted, and shortened.
std::string in_quotes(std::string_view value);

}  // namespace yoke::device

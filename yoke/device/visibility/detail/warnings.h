// yoke/device/visibility/detail/warnings.h -- the rules of all vendors applied to one environment, and what is odd
// about it.
#pragma once

#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/device/visibility/detail/rules.h"

namespace yoke::device {

/// What each variable selects. Units of `hip` are positions in `amd_left`, those of the others in `nvidia` and `amd`.
struct Selections {
  Gpus nvidia, amd;
  Gpus amd_left;         ///< Those that ROCr shows, in its order.
  Gpus amd_without_kfd;  ///< No program can compute on them: ROCr knows what KFD lists.
  Selection cuda, rocr, hip;
  std::string hip_variable;  ///< HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES in its place.
};

Selections select_all(const Environment& environment, const Snapshot& snapshot);

std::vector<std::string> warnings(const Environment& environment, const Selections& selections);

/// A variable's value for a sentence: printable, quoted, cut.
std::string in_quotes(std::string_view value);

}  // namespace yoke::device

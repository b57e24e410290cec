// yoke/dist/detail/nccl_engine.h -- chooses between the two engines for NCCL that torch has from 2.14 on.
//
// Both are classes of C++: c10d::ProcessGroupNCCL, "nccl-legacy" in Python, and c10d::nccl2::ProcessGroupNCCL, "nccl2".
// They exchange NCCL's ids under different keys of the store, and issue different calls for some collectives. So all
// ranks of a job, in C++ and in Python, need the same one: the one that Python makes for the name "nccl".
#pragma once

#include <string>

#include "yoke/base/environment.h"

namespace yoke::dist {

/// The libtorch that a plug was compiled with.
struct NcclOfTorch {
  int major = 0, minor = 0;  ///< Version of torch.
  bool has_nccl2 = false;    ///< Whether it has the header of nccl2.
};

/// Returns "nccl" if there is only one engine, otherwise "nccl2" or "nccl-legacy". Pure.
/// Source  torch/distributed/distributed_c10d.py, _register_builtin_nccl_backend: in torch 2.14 nccl2 if
///         TORCH_DIST_USE_NCCL2 is 1, from 2.15 on unless it is 0.
std::string nccl_engine(const NcclOfTorch& torch, const Environment& environment);

}  // namespace yoke::dist

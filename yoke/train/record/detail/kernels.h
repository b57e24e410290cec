// yoke/train/record/detail/kernels.h -- calls of frequent operators on small tensors without boxes and allocation.
#pragma once

#include <functional>

#include "yoke/train/record/detail/plan.h"

namespace yoke::train::detail {

/// Returns a function that does what the call does, with the same bits, and writes to `results`, whose memory stays in
/// place; null if there is none for this operator and these tensors.
std::function<void()> direct_kernel(const RecordedCall& call, const std::vector<at::Tensor>& results);

}  // namespace yoke::train::detail

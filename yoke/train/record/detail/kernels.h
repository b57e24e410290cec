// yoke/train/record/detail/kernels.h -- calls of frequent operators on small tensors without boxes and allocation.
#pragma once

#include <functional>

#include "yoke/train/record/detail/plan.h"

namespace yoke::train::detail {

/// Returns a function that does what the call does, with the same bits, and writes to `results`, whose memory stays in
/// place; null if there is none for this operator and these tensors.
std::function<void()> direct_kernel(const RecordedCall& call, const std::vector<at::Tensor>& results);

/// The same for a call that makes no memory and writes to one of its arguments: copies to and from the buckets of
/// DistributedDataParallel.
std::function<void()> direct_write(const RecordedCall& call);

}  // namespace yoke::train::detail

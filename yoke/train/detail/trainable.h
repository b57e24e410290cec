// yoke/train/detail/trainable.h -- which parameters a network gives to its optimizer.
#pragma once

#include <ATen/core/Tensor.h>

namespace yoke::train::detail {

/// Whether `parameter` is trained, or may be later: a frozen one of a dtype that optimizers take. As in PyTorch, the
/// optimizer has it from the beginning, so that unfreezing it trains it; until its first gradient it has no state.
inline bool is_trainable(const at::Tensor& parameter) {
  if (parameter.requires_grad()) return true;
  if (parameter.layout() != at::kStrided) return false;
  const auto dtype = parameter.scalar_type();
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16;
}

}  // namespace yoke::train::detail

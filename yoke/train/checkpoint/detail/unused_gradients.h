// yoke/train/checkpoint/detail/unused_gradients.h -- whether a training is between the batches of one step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "yoke/train/detail/step_watch.h"

namespace yoke::train::detail {

/// Sees which gradients the optimizers of this thread use, from its construction on. Gradients are no part of a kept
/// state, so nothing is kept while some are there that no step has used.
class UnusedGradients {
 public:
  UnusedGradients();
  /// Whether a parameter has a gradient that is not zero, and that no step since the last forget() has used.
  bool any(const std::vector<at::Tensor>& parameters) const;
  void forget() { used_.clear(); }

 private:
  struct Used {
    const c10::TensorImpl* gradient;
    uint32_t version;
  };
  std::unordered_map<const c10::TensorImpl*, Used> used_;  ///< For each parameter.
  StepWatch watch_;
};

}  // namespace yoke::train::detail

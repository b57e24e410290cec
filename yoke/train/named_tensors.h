// yoke/train/named_tensors.h -- tensors by name, in an order of their own or sorted.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace yoke::train {

/// What `module.named_parameters().pairs()` gives.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Each tensor once, under the first of its names, as Python's `named_parameters()` gives them. C++'s gives a tied
/// weight under every name that it has; whatever changes parameters or gradients here (optimizers, clipping,
/// GradScaler, averages) takes it once, in this way.
inline NamedTensors distinct(const NamedTensors& tensors) {
  NamedTensors result;
  std::unordered_set<const c10::TensorImpl*> taken;
  for (const auto& named : tensors) {
    const auto& tensor = named.second;
    if (!tensor.defined() || taken.insert(tensor.unsafeGetTensorImpl()).second) result.push_back(named);
  }
  return result;
}

/// What a state or a file holds: each name once.
using TensorMap = std::map<std::string, at::Tensor>;

}  // namespace yoke::train

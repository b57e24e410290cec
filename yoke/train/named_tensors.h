// yoke/train/named_tensors.h -- tensors by name, in a given order or sorted.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace yoke::train {

/// The type of `module.named_parameters().pairs()`.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Returns each tensor once, under its first name, as Python's `named_parameters()` does. libtorch's function returns a
/// tied weight under each of its names. Optimizers, clipping, GradScaler and averages use distinct() to handle a tied
/// weight once.
inline NamedTensors distinct(const NamedTensors& tensors) {
  NamedTensors result;
  std::unordered_set<const c10::TensorImpl*> taken;
  for (const auto& named : tensors) {
    const auto& tensor = named.second;
    if (!tensor.defined() || taken.insert(tensor.unsafeGetTensorImpl()).second) result.push_back(named);
  }
  return result;
}

/// A module, the holder of a module (torch::nn::Linear), or a ParallelModule: the argument of optimizers and averages.
template <class M>
concept HasParameters = requires(const M& model) {
  NamedTensors(model.parameters());
}
|| requires(const M& module) { module.named_parameters().pairs(); }
|| requires(const M& holder) { holder->named_parameters().pairs(); };

/// The parameters of a module. For a ParallelModule, the tensors that an optimizer steps: whole parameters, or this
/// rank's parts of them.
template <HasParameters M>
NamedTensors parameters_of(const M& model) {
  if constexpr (requires { NamedTensors(model.parameters()); }) {
    return model.parameters();
  } else if constexpr (requires { model.named_parameters().pairs(); }) {
    return model.named_parameters().pairs();
  } else {
    return model->named_parameters().pairs();
  }
}

template <HasParameters M>
NamedTensors buffers_of(const M& model) {
  if constexpr (requires { NamedTensors(model.buffers()); }) {
    return model.buffers();
  } else if constexpr (requires { model.named_buffers().pairs(); }) {
    return model.named_buffers().pairs();
  } else {
    return model->named_buffers().pairs();
  }
}

/// The tensors of a state or a file; each name is unique.
using TensorMap = std::map<std::string, at::Tensor>;

}  // namespace yoke::train

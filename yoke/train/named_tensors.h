// yoke/train/named_tensors.h -- tensors by name, in an order of their own or sorted.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
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

/// A module, the holder of one (torch::nn::Linear), or a ParallelModule: what optimizers and averages are made for.
template <class M>
concept HasParameters = requires(const M& model) {
  { model.parameters() } -> std::same_as<NamedTensors>;
}
|| requires(const M& module) { module.named_parameters().pairs(); }
|| requires(const M& holder) { holder->named_parameters().pairs(); };

/// Those of a module, or what an optimizer steps of a ParallelModule's: parameters, or this rank's parts.
template <HasParameters M>
NamedTensors parameters_of(const M& model) {
  if constexpr (requires {
                  { model.parameters() } -> std::same_as<NamedTensors>;
                }) {
    return model.parameters();
  } else if constexpr (requires { model.named_parameters().pairs(); }) {
    return model.named_parameters().pairs();
  } else {
    return model->named_parameters().pairs();
  }
}

template <HasParameters M>
NamedTensors buffers_of(const M& model) {
  if constexpr (requires {
                  { model.buffers() } -> std::same_as<NamedTensors>;
                }) {
    return model.buffers();
  } else if constexpr (requires { model.named_buffers().pairs(); }) {
    return model.named_buffers().pairs();
  } else {
    return model->named_buffers().pairs();
  }
}

/// What a state or a file holds: each name once.
using TensorMap = std::map<std::string, at::Tensor>;

}  // namespace yoke::train

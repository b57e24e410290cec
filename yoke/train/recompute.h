// yoke/train/recompute.h -- activations computed twice instead of kept (gradient checkpointing).
//
//     for (auto& block : blocks) x = recompute([&](const at::Tensor& input) { return block->forward(input); }, x);
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace yoke::train {

using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

/// `function(inputs)`, of whose graph only the inputs are kept: backward calls it again, and goes through the graph of
/// that second call at once. So a chain of n such calls holds n inputs and the activations of one call, for a third
/// more computation.
///
/// Gradients   of inputs and of whatever parameters the function uses, bit for bit those without recompute, also when
///             no input needs one.
/// Repetition  both calls see the same random numbers (of the CPU, and of the inputs' GPU) and the same autocast; they
///             must do the same, and not change what the other reads. Batch norm's running statistics change twice.
/// Inputs      defined tensors. What the function captures is not differentiated but for leaves.
/// Backward    by backward(), once for each forward; not by autograd::grad, since the parameters' gradients are
///             accumulated within. No gradients of gradients.
/// Errors      kFailedPrecondition within autograd::grad; kInvalidArgument for an undefined input, or a second call
///             that gives another number of outputs.
/// Source      Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; PyTorch's reentrant checkpoint.
std::vector<at::Tensor> recompute(const TensorFunction& function, const std::vector<at::Tensor>& inputs);

/// The same for a function of tensors that gives one.
template <class Function, std::same_as<at::Tensor>... Inputs>
requires(sizeof...(Inputs) > 0) at::Tensor recompute(Function function, const Inputs&... inputs) {
  const auto call =
      [function = std::move(function)]<size_t... i>(const std::vector<at::Tensor>& all, std::index_sequence<i...>) {
    return std::vector<at::Tensor>{function(all[i]...)};
  };
  return recompute(
             [call](const std::vector<at::Tensor>& all) { return call(all, std::index_sequence_for<Inputs...>()); },
             std::vector<at::Tensor>{inputs...})
      .front();
}

}  // namespace yoke::train

// yoke/train/recompute.h -- recomputes activations in backward instead of keeping them (gradient checkpointing).
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

/// Computes `function(inputs)` and keeps only the inputs of its graph. Backward calls the function again and
/// differentiates that second call at once. So a chain of n such calls holds n inputs and the activations of one call,
/// at the cost of a third more computation.
///
/// Gradients   the gradients of the inputs and of all parameters that the function uses have the same bits as without
///             recompute. The parameters get gradients even if no input needs one.
/// Repetition  both calls draw the same random numbers (of the CPU, and of the inputs' GPU) and use the same autocast.
///             They must compute the same results, and must not change each other's input. Batch norm's running
///             statistics are updated twice.
/// Inputs      must be defined tensors. Of the tensors that the function captures, only leaves are differentiated.
/// Backward    call backward(), once for each forward. autograd::grad throws: recompute runs a nested backward(), which
///             adds parameters' gradients to their grad() and cannot return them. Gradients of gradients are not
///             supported.
/// Errors      kFailedPrecondition: called by autograd::grad; kInvalidArgument: an input is undefined, or the second
///             call returns a different number of outputs.
/// Source      Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; PyTorch's reentrant checkpoint.
std::vector<at::Tensor> recompute(const TensorFunction& function, const std::vector<at::Tensor>& inputs);

/// Does the same for a function of tensors that returns one tensor.
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

// yoke/train/parallel/detail/autograd_node.h -- how libtorch owns the nodes of an autograd graph.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace yoke::train {

/// Owns a node: a std::shared_ptr up to libtorch 2.12, and a c10::intrusive_ptr since 2.13.
using NodePointer = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

/// Makes a node of type N. With an intrusive_ptr, a node whose members can own the node again (through a tensor, for
/// instance) must release them in release_resources(), as the engine's own nodes do.
template <typename N, typename... Arguments>
auto make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<torch::autograd::Node>>) {
    return std::make_shared<N>(std::forward<Arguments>(arguments)...);
  } else {
    return c10::make_intrusive<N>(std::forward<Arguments>(arguments)...);
  }
}

}  // namespace yoke::train

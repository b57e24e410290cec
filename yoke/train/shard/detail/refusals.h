// yoke/train/shard/detail/refusals.h -- makes functions of libtorch that do not know parts refuse a sharded model.
//
// torch::optim, clip_grad_norm_, torch::save, sums and norms would otherwise step, clip, save and add up tensors
// without elements, silently.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace torch::nn {
class Module;
}

namespace yoke::train {

/// A tensor without elements that stands for the values of a sharded parameter, or for its gradient. It may be
/// replaced, dropped and detached; any other operator throws kFailedPrecondition, which says what to call instead.
at::Tensor make_placeholder(const at::TensorOptions& options);

/// Registered as a submodule under kSaveGuard, it makes torch::save and torch::load of the module throw
/// kFailedPrecondition, which says what to call instead.
std::shared_ptr<torch::nn::Module> save_guard();
inline constexpr auto kSaveGuard = "yoke_sharded";

}  // namespace yoke::train
